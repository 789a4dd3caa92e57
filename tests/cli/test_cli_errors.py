import errno
import resource
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from framp import runs

TINY = str(Path(__file__).with_name("tiny.toml"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digitz"], ["unknown preset 'digitz'", "did you mean 'digits'", ".toml"]),
        (["no/such.toml"], ["no/such.toml"]),
        ([TINY, "--recipe", "farmp"], ["unknown recipe 'farmp'", "did you mean 'framp'"]),
        ([TINY, "--set", "partition.alhpa=1"], ["unknown key 'partition.alhpa'", "did you mean 'partition.alpha'"]),
        ([TINY, "--set", "partitoin.alpha=1"], ["unknown section 'partitoin'", "did you mean 'partition'"]),
        ([TINY, "--set", "partition.alpha"], ["--set partition.alpha", "key=value"]),
        ([TINY, "--set", "training.steps=many"], ["training.steps", "many", "int"]),
        ([TINY, "--set", "federation.budgets=[0, 1]"], ["budget '0'", "(0, 1]"]),
        ([TINY, "--set", "federation.budgets=1/4,5/4"], ["budget '5/4'", "(0, 1]"]),
        ([TINY, "--set", "federation.shares=[0.5, 0.5, 0.5, 0.5]"], ["federation.shares", "sum to 1"]),
        ([TINY, "--set", "federation.participants=5"], ["federation.participants", "4 clients", "lower it"]),
        ([TINY, "--set", "partition.clients=2000"], ["2000 clients", "lower partition.clients"]),
        ([TINY, "--engine", "threads"], ["engine.name", "'threads'", "processes"]),
        ([TINY, "--rounds", "0"], ["rounds is 0", "at least 1"]),
        ([TINY, "--rounds", "few"], ["--rounds", "framp run --help"]),
        ([TINY, "--ruonds", "3"], ["--ruonds", "framp run --help"]),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framp: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    framp("run", *arguments, "--out", "result").refused(*words)
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_key_in_a_file_names_the_file(tmp_path: Path, framp: Any) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[partition]\nclinets = 3\n")
    framp("run", file, "--out", tmp_path / "result").refused(str(file), "'partition.clinets'", "'partition.clients'")
    file.write_text("rounds = \n")
    framp("run", file, "--out", tmp_path / "result").refused(str(file), "not valid TOML")
    assert not (tmp_path / "result").exists()


def test_unknown_commands_are_one_line(framp: Any) -> None:
    framp("rnu").refused("'rnu'", "framp --help")


def test_a_client_without_data_is_refused(tmp_path: Path, framp: Any) -> None:
    out = tmp_path / "result"
    framp("run", TINY, "--set", "partition.clients=400", "--out", out).refused("test split has 359 samples", "400")
    assert not out.exists()


def _images(folder: Path, labels: list[int]) -> Path:
    import datasets

    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        images = [generator.integers(0, 255, (8, 8), dtype=np.uint8) for _ in labels]
        features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
        table = datasets.Dataset.from_dict({"img": images, "label": labels}, features=features)
        table.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return folder


def test_wrong_data_are_one_line_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framp: Any) -> None:
    monkeypatch.setenv("FRAMP_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "result"
    source = [TINY, "--set", "data.source=huggingface", "--out", out]
    framp("run", *source).refused("data.path is empty")
    framp("run", *source, "--set", f"data.path={tmp_path / 'none'}").refused("does not exist")
    (tmp_path / "good").mkdir()
    folder = _images(tmp_path / "good", [0, 1] * 20)
    here = [*source, "--set", f"data.path={folder}"]
    framp("run", *here, "--set", "data.label_column=fine_label").refused("fine_label", "label")
    framp("run", *here, "--set", "data.image_column=image").refused("image", "img")
    framp("run", *here, "--set", "data.train_split=training").refused("training", "train")
    (tmp_path / "bad").mkdir()
    folder = _images(tmp_path / "bad", [0, 1, -1, 1] * 10)
    framp("run", *source, "--set", f"data.path={folder}").refused("label", "-1")
    assert not out.exists()


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path, framp: Any) -> None:
    out = tmp_path / "result"
    assert framp("run", TINY, "--out", out, "--quiet").code == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    framp("run", TINY, "--seed", "1", "--out", out).refused(str(out), "--out")
    framp("compare", TINY, "--recipes", "framp", "--out", out).refused(str(out), "--out")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    file = tmp_path / "file"
    file.write_text("mine")
    framp("run", TINY, "--out", file).refused("file", "--out")
    framp("compare", TINY, "--recipes", "framp", "--out", file).refused("file", "--out")
    framp("partition", "digits", "--out", file).refused("file", "--out")
    assert file.read_text() == "mine"


def test_resume_of_what_is_no_run_is_refused(tmp_path: Path, framp: Any) -> None:
    framp("resume", tmp_path / "nothing").refused("nothing", "holds no run")
    framp("resume", tmp_path).refused("holds no run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, ["no space", "free some"]), (errno.EACCES, ["denied"])])
def test_what_the_machine_refuses_is_one_line(
    number: int,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    framp: Any,
) -> None:
    def refuse(*arguments: Any) -> NoReturn:
        raise OSError(number, "", str(tmp_path / "result"))

    monkeypatch.setattr(runs, "start", refuse)
    framp("run", TINY, "--out", tmp_path / "result").refused("result", *words)


def test_an_error_of_framp_itself_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framp: Any) -> None:
    def fail(*arguments: Any) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(runs, "start", fail)
    with pytest.raises(ZeroDivisionError):
        framp("run", TINY, "--out", tmp_path / "result")


def test_files_that_grow_too_large_end_a_run_with_one_line(tmp_path: Path, framp: Any) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    process = framp.spawn("run", TINY, "--out", tmp_path / "result", "--quiet", preexec_fn=limit)
    framp.ended(process).refused("result")
    assert not list((tmp_path / "result").rglob("*.partial"))
