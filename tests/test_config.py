import dataclasses
import hashlib
import json
import math
import tomllib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framp.budgets import Budget
from framp.config import Config
from framp.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=12)
SIZES = st.lists(st.fractions(min_value=Fraction(1, 10**6), max_value=1), min_size=1, max_size=5, unique=True)


def plausible(value: Any, choices: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Values of a field that no rule forbids, from its default and its choices alone."""
    if choices:
        return st.sampled_from(choices)
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.integers(2, 10**12)
    if isinstance(value, float):
        return st.floats(0, 1, exclude_min=True, exclude_max=True)
    return TEXT


@st.composite
def configurations(draw: st.DrawFn) -> Config:
    tree: dict[str, Any] = {}
    for entry in dataclasses.fields(Config):
        default = getattr(Config(), entry.name)
        if not dataclasses.is_dataclass(default):
            tree[entry.name] = draw(plausible(default, entry.metadata["choices"]))
            continue
        for key in dataclasses.fields(default):
            value = getattr(default, key.name)
            if not isinstance(value, list):
                strategy = plausible(value, key.metadata["choices"])
                tree.setdefault(entry.name, {})[key.name] = draw(strategy)
    budgets, further = draw(SIZES), draw(SIZES)
    weights = draw(st.lists(st.integers(1, 99), min_size=len(budgets), max_size=len(budgets)))
    clients = draw(st.integers(1, 10**6))
    tree["partition"]["clients"] = clients
    tree["federation"] = {
        "budgets": [str(fraction) for fraction in budgets],
        "shares": [weight / sum(weights) for weight in weights],
        "participants": draw(st.integers(1, clients)),
    }
    tree["evaluation"]["sizes"] = [str(float(fraction)) for fraction in further]
    return Config.from_dict(tree)


@given(configurations(), st.booleans())
def test_what_is_written_reads_back_the_same(config: Config, explain: bool) -> None:
    text = config.to_toml(explain)
    assert Config.from_dict(tomllib.loads(text)) == config
    assert Config.from_dict(config.to_dict()) == config


def test_even_the_delete_character_reads_back() -> None:
    config = Config(name="a\x7fb")
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


def test_a_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    config = Config().with_values({"partition.alpha": 1e-5, "name": "Grüße \\ \"quoted\" 'x'\n2"})
    path.write_text(config.to_toml(explain=True), encoding="utf-8")
    assert Config.from_toml(path) == config
    path.write_text("rounds = 7\n[partition]\nalpha = 2\n", encoding="utf-8")
    assert Config.from_toml(path) == Config().with_values({"rounds": 7, "partition.alpha": 2.0})


def test_every_setting_is_explained() -> None:
    lines = [line for line in Config().to_toml(explain=True).splitlines() if " = " in line]
    assert len(lines) >= 40
    assert all(line.split("  # ", 1)[1].strip() for line in lines)
    model, evaluation = (line for line in lines if line.startswith("norm = "))
    assert model.endswith(": batch | group")
    assert evaluation.endswith(": batch | static")


def test_records_are_frozen_and_do_not_share_lists() -> None:
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.rounds = 3  # type: ignore[misc]
    assert config.federation.budgets is not Config().federation.budgets


REFUSED: list[tuple[dict[str, Any], str]] = [
    # misspelt names, at every level
    ({"roundz": 1}, "unknown key 'roundz'; did you mean 'rounds'?"),
    ({"federations": {}}, "unknown key 'federations'; did you mean 'federation'?"),
    ({"partition": {"alfa": 1}}, "unknown key 'partition.alfa'; did you mean 'partition.alpha'?"),
    ({"training": {"step": 1}}, "unknown key 'training.step'; did you mean 'training.steps'?"),
    ({"data": {"source": "digit"}}, "unknown value for data.source 'digit'; did you mean 'digits'?"),
    ({"model": {"name": "resnet"}}, "unknown value for model.name 'resnet'; did you mean 'resnet18'?"),
    ({"engine": {"name": "proceses"}}, "unknown value for engine.name 'proceses'; did you mean 'processes'?"),
    # wrong types
    ({"rounds": "5"}, "rounds is '5'; it takes a value of type int"),
    ({"rounds": 1.5}, "rounds is 1.5; it takes a value of type int"),
    ({"rounds": True}, "rounds is True; it takes a value of type int"),
    ({"partition": {"alpha": "x"}}, "partition.alpha is 'x'; it takes a value of type float"),
    ({"partition": {"alpha": True}}, "partition.alpha is True; it takes a value of type float"),
    ({"data": {"augment": 1}}, "data.augment is 1; it takes a value of type bool"),
    ({"data": {"path": ["x"]}}, "data.path is ['x']; it takes a value of type str"),
    ({"federation": {"budgets": "1/4"}}, "federation.budgets is '1/4', not a list; write it in brackets"),
    ({"federation": {"shares": [1, "x"]}}, "federation.shares is 'x'; it takes a value of type float"),
    ({"partition": 3}, "'partition' is a section; write its keys below [partition]"),
    ({"name": {"x": 1}}, "name is {'x': 1}; it takes a value of type str"),
    # numbers out of range
    ({"rounds": 0}, "rounds is 0; it has to be a number of at least 1"),
    ({"seed": -1}, "seed is -1; it has to be a number of at least 0"),
    ({"training": {"steps": 0}}, "training.steps is 0; it has to be a number of at least 1"),
    ({"training": {"batch": 0}}, "training.batch is 0; it has to be a number of at least 1"),
    ({"training": {"rate": -0.1}}, "training.rate is -0.1; it has to be a number of at least 0"),
    ({"training": {"rate": math.nan}}, "training.rate is nan; it has to be a number of at least 0"),
    ({"training": {"rate": math.inf}}, "training.rate is inf; it has to be a number of at least 0"),
    ({"alignment": {"weight": math.nan}}, "alignment.weight is nan; it has to be a number of at least 0"),
    ({"alignment": {"weight": math.inf}}, "alignment.weight is inf; it has to be a number of at least 0"),
    ({"generation": {"block": 0}}, "generation.block is 0; it has to be a number of at least 1"),
    ({"generation": {"latent": 0}}, "generation.latent is 0; it has to be a number of at least 1"),
    ({"generation": {"head": "block"}}, "unknown value for generation.head 'block'; did you mean 'blocks'?"),
    ({"generation": {"personal_rate": -1}}, "generation.personal_rate is -1.0; it has to be a number of at least 0"),
    ({"generation": {"shared_rate": math.inf}}, "generation.shared_rate is inf; it has to be a number of at least 0"),
    ({"partition": {"alpha": 0}}, "partition.alpha is 0.0; it has to be a number above 0"),
    ({"partition": {"alpha": math.nan}}, "partition.alpha is nan; it has to be a number above 0"),
    ({"partition": {"clients": 0}}, "partition.clients is 0; it has to be a number of at least 1"),
    ({"engine": {"workers": 0}}, "engine.workers is 0; it has to be a number of at least 1"),
    ({"checkpoint": {"every": 0}}, "checkpoint.every is 0; it has to be a number of at least 1"),
    ({"evaluation": {"every": 0}}, "evaluation.every is 0; it has to be a number of at least 1"),
    # budgets and who has them
    ({"federation": {"budgets": []}}, "federation.budgets is empty; name at least one fraction"),
    (
        {"federation": {"budgets": ["0"], "shares": [1]}},
        "budget '0' is outside (0, 1]; a budget is a fraction of the full model",
    ),
    (
        {"federation": {"budgets": ["5/4"], "shares": [1]}},
        "budget '5/4' is outside (0, 1]; a budget is a fraction of the full model",
    ),
    (
        {"evaluation": {"sizes": [1.5]}},
        "budget '1.5' is outside (0, 1]; a budget is a fraction of the full model",
    ),
    (
        {"federation": {"budgets": ["a"], "shares": [1]}},
        "budget 'a' is not a number; write a fraction such as 1/16 or 0.25",
    ),
    (
        {"federation": {"budgets": ["1/4", "0.25"], "shares": [0.5, 0.5]}},
        "federation.budgets ['1/4', '0.25'] names a fraction twice; give each one share",
    ),
    (
        {"federation": {"budgets": ["1/4", "1"], "shares": [1]}},
        "federation.shares has 1 entries for 2 budgets; give one share each",
    ),
    (
        {"federation": {"budgets": ["1/4", "1"], "shares": [0.5, 0.4]}},
        "federation.shares [0.5, 0.4] sum to 0.9; change them to sum to 1",
    ),
    (
        {"federation": {"budgets": ["1/4", "1"], "shares": [1.5, -0.5]}},
        "federation.shares [1.5, -0.5] have a negative one; give each budget a share of at least 0",
    ),
    (
        {"partition": {"clients": 9}},
        "federation.participants is 10, more than the 9 clients; lower it or raise partition.clients",
    ),
]


@pytest.mark.parametrize(("tree", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_wrong_is_named(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_dict(tree)
    assert str(caught.value) == message


def test_a_share_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"federation\.shares"):
        Config.from_dict({"federation": {"budgets": ["1"], "shares": [math.nan]}})


def test_an_infinite_concentration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"partition\.alpha"):
        Config.from_dict({"partition": {"alpha": math.inf}})


@pytest.mark.parametrize("strength", [math.nan, math.inf])
def test_a_strength_that_is_not_a_number_is_refused(strength: float) -> None:
    with pytest.raises(ConfigError, match=r"generation\.served_strength"):
        Config.from_dict({"generation": {"served_strength": strength}})


def test_whole_numbers_stand_for_floats_and_numbers_for_texts() -> None:
    config = Config.from_dict({"partition": {"alpha": 1}, "federation": {"budgets": [0.04, 1], "shares": [0.5, 0.5]}})
    assert type(config.partition.alpha) is float
    assert config.federation.budgets == ["0.04", "1"]
    assert config.budgets == [Budget("0.04", Fraction(1, 25)), Budget("1", Fraction(1))]


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("rounds", "7", 7),
        ("rounds", 7, 7),
        ("name", "7", "7"),
        ("name", "a = b", "a = b"),
        ("data.augment", "true", True),
        ("partition.alpha", "1", 1.0),
        ("partition.alpha", "1e-3", 0.001),
        ("partition.alpha", ".5", 0.5),
        ("data.path", "", ""),
        ("evaluation.sizes", "1/64, 0.04,1", ["1/64", "0.04", "1"]),
        ("evaluation.sizes", '["1/64", 0.04]', ["1/64", "0.04"]),
        ("evaluation.sizes", "", []),
        ("federation.shares", "0.1,0.2,0.3,0.4", [0.1, 0.2, 0.3, 0.4]),
        ("federation.shares", "[1, 0, 0, 0]", [1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_a_value_given_as_text_is_read_as_its_fields_type(key: str, text: Any, expected: Any) -> None:
    value: Any = Config().with_values({key: text})
    for part in key.split("."):
        value = getattr(value, part)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("roundz", "1", "unknown key 'roundz'; did you mean 'rounds'?"),
        ("partition.alfa", "1", "unknown key 'partition.alfa'; did you mean 'partition.alpha'?"),
        ("partitions.alpha", "1", "unknown section 'partitions'; did you mean 'partition'?"),
        ("rounds.x", "1", "unknown section 'rounds'; known: "),
        ("partition.alpha.x", "1", "unknown section 'alpha'; known: "),
        ("rounds", "many", "rounds is 'many'; it takes a value of type int"),
        ("rounds", "1.5", "rounds is 1.5; it takes a value of type int"),
        ("data.augment", "yes", "data.augment is 'yes'; it takes a value of type bool"),
        ("federation.shares", "[1", "federation.shares is '[1'; it takes a list"),
        ("federation.shares", "a,b", "federation.shares is 'a'; it takes a value of type float"),
        ("partition", "3", "'partition' is a section; write its keys below [partition]"),
    ],
)
def test_a_text_that_does_not_fit_is_named(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().with_values({key: text})
    assert str(caught.value).startswith(message)


def test_with_values_leaves_the_original_as_it_is() -> None:
    config = Config()
    changed = config.with_values({"federation.shares": "1,0,0,0", "rounds": 3})
    assert config == Config()
    assert changed != config
    assert config.with_values({}) == config


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "my.toml: No such file or directory; name a TOML file that can be read"),
        (lambda path: path.write_bytes(b"name = \xff"), "invalid start byte; save it as UTF-8"),
        (lambda path: path.write_text("rounds = = 3"), "is not valid TOML"),
        (lambda path: path.write_text("roundz = 3"), "did you mean 'rounds'?"),
        (lambda path: path.mkdir(), "my.toml: Is a directory; name a TOML file"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, write: Callable[[Path], object], message: str) -> None:
    path = tmp_path / "my.toml"
    write(path)
    with pytest.raises(ConfigError) as caught:
        Config.from_toml(path)
    assert str(caught.value).count(str(path)) == 1
    assert message in str(caught.value)


def test_the_hash_ignores_what_no_result_depends_on() -> None:
    config = Config()
    same = {"name": "other", "engine.name": "processes", "engine.workers": 7, "checkpoint.every": 9}
    assert config.with_values(same).sha256() == config.sha256()
    assert len(config.sha256()) == 64


HASHED = [None, "data", "partition", "model", "federation", "training", "generation", "alignment", "evaluation"]


@pytest.mark.parametrize("section", HASHED)
def test_the_hash_depends_on_everything_else(section: str | None) -> None:
    config = Config()
    record = config if section is None else getattr(config, section)
    hashes = {config.sha256()}
    changed = 0
    for entry in dataclasses.fields(record):
        value = getattr(record, entry.name)
        if dataclasses.is_dataclass(value) or (section is None and entry.name == "name"):
            continue
        choices = entry.metadata["choices"]
        other: Any
        if choices:
            other = next(choice for choice in choices if choice != value)
        elif isinstance(value, bool):
            other = not value
        elif isinstance(value, list):
            other = value[::-1] if value != value[::-1] else [0.1, 0.2, 0.3, 0.4]
        elif isinstance(value, float):
            other = value / 2 or 0.5
        else:
            other = value + type(value)(1)
        key = entry.name if section is None else f"{section}.{entry.name}"
        hashes.add(config.with_values({key: other}).sha256())
        changed += 1
    assert len(hashes) == changed + 1


def test_the_hash_ignores_where_a_local_folder_lies() -> None:
    here, there, hub = (Config().with_values({"data.path": path}) for path in ("/here/set", "/there/set", "a/set"))
    assert here.sha256() == there.sha256() != hub.sha256()


def test_values_sent_without_loss_leave_the_hash_alone() -> None:
    """Runs of versions without a wire can be resumed."""
    config = Config()
    tree = config.to_dict()
    del tree["engine"], tree["checkpoint"], tree["name"], tree["wire"]
    assert config.sha256() == hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
    hashes = {config.with_values({"wire.values": values}).sha256() for values in ("fp32", "fp16", "bf16", "int8")}
    assert len(hashes) == 4
