import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from framp import presets
from framp.config import Config
from framp.recipes import RECIPES


def test_help_lists_commands_presets_and_exit_codes(framp: Any) -> None:
    result = framp("--help")
    assert result.code == 0
    for word in ("run", "resume", "compare", "partition", "recipes", "config", "doctor", "130", "143"):
        assert word in result.out
    assert framp().out == result.out
    text = " ".join(framp("run", "--help").out.replace("│", " ").split())
    assert all(name in text for name in presets.names())


def test_version_is_that_of_the_package(framp: Any) -> None:
    assert framp("--version").out == f"framp {importlib.metadata.version('framp')}\n"
    assert framp.ended(framp.spawn("--version")).out == framp("--version").out


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, framp.cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_recipes_lists_all_with_their_parts(framp: Any) -> None:
    found = {entry["recipe"]: entry for entry in framp("recipes", "--json").json["recipes"]}
    assert list(found) == list(RECIPES)
    assert found["framp"]["backbone"] == "Generated"
    assert found["framp"]["descriptors"] == "Features"
    assert found["fiarse"]["descriptors"] is None
    out = framp("recipes").out
    assert all(name in out and recipe.summary in out for name, recipe in RECIPES.items())


@pytest.mark.parametrize("name", presets.names())
def test_config_prints_what_can_be_read_again(name: str, framp: Any) -> None:
    out = framp("config", name, "--set", "partition.alpha=0.5").out
    expected = presets.load(name).with_values({"partition.alpha": 0.5})
    assert Config.from_dict(tomllib.loads(out)) == expected
    assert "# concentration of the Dirichlet priors" in out
    assert framp("config", name, "--set", "partition.alpha=0.5", "--json").json["sha256"] == expected.sha256()


def test_config_is_printed_where_only_ascii_is(monkeypatch: pytest.MonkeyPatch, framp: Any) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = framp.ended(framp.spawn("config", "digits"))
    assert (result.code, result.err) == (0, "")
    assert Config.from_dict(tomllib.loads(result.out)) == presets.load("digits")


def test_doctor_reports_versions_extras_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framp: Any) -> None:
    monkeypatch.setenv("FRAMP_CACHE", str(tmp_path / "not" / "there"))
    found = framp("doctor", "--json").json
    assert found["versions"]["torch"] == importlib.metadata.version("torch")
    assert found["extras"]["dev"] == {"complete": True, "missing": [], "install": 'pip install "framp[dev]"'}
    assert found["cores"] >= 1
    assert found["cache"]["folder"] == str(tmp_path / "not" / "there")
    assert found["cache"]["free_bytes"] > 0
    out = framp("doctor").out
    assert "extra dev" in out
    assert "memory" in out


def test_doctor_says_how_to_get_an_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch, framp: Any) -> None:
    from framp.cli import doctor

    monkeypatch.setattr(doctor, "_requirements", lambda: (["torch"], {"graph": ["no-such-package"]}))
    assert 'missing no-such-package; pip install "framp[graph]"' in framp("doctor").out
