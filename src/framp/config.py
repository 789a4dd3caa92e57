"""Every setting of a run, in one tree of frozen records; TOML on disk, `--set section.key=value` on the command line.

Each field carries its own explanation, which `framp config` prints beside it. A misspelt key is an error that names
the right one.
"""

import dataclasses
import hashlib
import json
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framp.budgets import Budget
from framp.errors import ConfigError, unknown
from framp.settings import (
    AlignmentConfig,
    CheckpointConfig,
    CostConfig,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    ExitsConfig,
    FederationConfig,
    GenerationConfig,
    ModelConfig,
    PartitionConfig,
    SbmConfig,
    ScoreConfig,
    SharedConfig,
    TrainingConfig,
    WidthConfig,
    WireConfig,
    setting,
)


@dataclass(frozen=True)
class Config:
    """A complete run."""

    name: str = setting("run", "the preset's name, for headings")
    recipe: str = setting("framp", "the method: see `framp recipes`")
    rounds: int = setting(40, "communication rounds")
    seed: int = setting(0, "seed of the initial network, the sampling of clients and the batches")
    data: DataConfig = field(default_factory=DataConfig)
    sbm: SbmConfig = field(default_factory=SbmConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    federation: FederationConfig = field(default_factory=FederationConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    shared: SharedConfig = field(default_factory=SharedConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    alignment: AlignmentConfig = field(default_factory=AlignmentConfig)
    width: WidthConfig = field(default_factory=WidthConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    cost: CostConfig = field(default_factory=CostConfig)
    exits: ExitsConfig = field(default_factory=ExitsConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    wire: WireConfig = field(default_factory=WireConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> "Config":
        """Build a configuration from nested tables; what is not named keeps its default."""
        config: Config = _build(cls, tree, "")
        return config

    @classmethod
    def from_toml(cls, path: Path) -> "Config":
        """Read a TOML file."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; name a TOML file that can be read") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"cannot read {path}: {error}; save it as UTF-8") from None
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def with_values(self, values: dict[str, Any]) -> "Config":
        """Return a copy with some keys ("partition.alpha") set; a text value is read as the field's type."""
        tree = self.to_dict()
        for key, value in values.items():
            section: dict[str, Any] = tree
            owner: Any = type(self)
            *path, last = key.split(".")
            for part in path:
                owner = _field_types(owner).get(part)
                if not dataclasses.is_dataclass(owner):
                    raise ConfigError(unknown("section", part, _sections()))
                section = section[part]
            if last not in _field_types(owner):
                raise ConfigError(unknown("key", key, _all_keys()))
            section[last] = _from_text(value, _field_types(owner)[last], key)
        return Config.from_dict(tree)

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain tables."""
        return dataclasses.asdict(self)

    def to_toml(self, explain: bool = False) -> str:
        """Write the complete configuration as TOML, with each field's explanation if asked."""
        return _to_toml(self, explain)

    def sha256(self) -> str:
        """Hash all that a result can depend on: everything but the engine, the checkpoints and where a folder lies."""
        tree = self.to_dict()
        del tree["engine"], tree["checkpoint"], tree["name"]
        if self.wire == WireConfig():  # without loss, no result depends on it
            del tree["wire"]
        if Path(self.data.path).is_absolute():  # a folder, whose content has a hash of its own
            tree["data"]["path"] = ""
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()

    @property
    def budgets(self) -> list[Budget]:
        """The federation's budgets."""
        return [Budget.parse(text) for text in self.federation.budgets]


def _field_types(owner: Any) -> dict[str, Any]:
    return typing.get_type_hints(owner)


def _sections() -> list[str]:
    return [name for name, kind in _field_types(Config).items() if dataclasses.is_dataclass(kind)]


def _all_keys() -> list[str]:
    keys = [name for name in _field_types(Config) if name not in _sections()]
    return keys + [f"{name}.{key}" for name in _sections() for key in _field_types(_field_types(Config)[name])]


def _build(owner: Any, tree: Any, prefix: str) -> Any:
    hints = _field_types(owner)
    if not isinstance(tree, dict):
        raise ConfigError(f"'{prefix.rstrip('.')}' is a section; write its keys below [{prefix.rstrip('.')}]")
    values = {}
    for key, value in tree.items():
        if key not in hints:
            known = _all_keys() if prefix else _all_keys() + _sections()
            raise ConfigError(unknown("key", prefix + key, known))
        kind = hints[key]
        if dataclasses.is_dataclass(kind):
            values[key] = _build(kind, value, f"{key}.")
        else:
            values[key] = _typed(value, kind, prefix + key)
    return owner(**values)


def _typed(value: Any, kind: Any, key: str) -> Any:
    if isinstance(kind, types.GenericAlias):
        (item,) = typing.get_args(kind)
        if not isinstance(value, list):
            raise ConfigError(f"{key} is {value!r}, not a list; write it in brackets")
        return [_typed(entry, item, key) for entry in value]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{key} is {value!r}; it takes a value of type {kind.__name__}")
    return value


def _from_text(value: Any, kind: Any, key: str) -> Any:
    """Read what follows `--set key=`: TOML where it is TOML, plain text where the field is text."""
    if not isinstance(value, str):
        return value
    if isinstance(kind, types.GenericAlias) and not value.lstrip().startswith("["):
        (item,) = typing.get_args(kind)
        return [_from_text(part.strip(), item, key) for part in value.split(",") if part.strip()]
    if kind is str:
        return value
    try:
        if kind is float:
            return float(value)  # TOML knows neither .5 nor 5.
        return tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, ValueError):
        expected = "a list" if isinstance(kind, types.GenericAlias) else f"a value of type {kind.__name__}"
        raise ConfigError(f"{key} is '{value}'; it takes {expected}") from None


def _toml_value(value: Any) -> str:
    if isinstance(value, float):
        return repr(value) if "e" not in repr(value) else f"{value:.17g}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _to_toml(record: Any, explain: bool, section: str = "") -> str:
    plain, nested = [], []
    for entry in dataclasses.fields(record):
        value = getattr(record, entry.name)
        if dataclasses.is_dataclass(value):
            nested.append(f"\n[{entry.name}]\n{_to_toml(value, explain, entry.name)}")
            continue
        line = f"{entry.name} = {_toml_value(value)}"
        if explain:
            choices = entry.metadata["choices"]
            line += f"  # {entry.metadata['help']}" + (f": {' | '.join(choices)}" if choices else "")
        plain.append(line + "\n")
    return "".join(plain + nested)


def _check(config: Config) -> None:
    for section in _sections():
        record = getattr(config, section)
        for entry in dataclasses.fields(record):
            choices, value = entry.metadata["choices"], getattr(record, entry.name)
            if choices and value not in choices:
                raise ConfigError(unknown(f"value for {section}.{entry.name}", str(value), choices))
    _at_least(config, 1, "rounds", "partition.clients", "partition.classes_per_client", "federation.participants")
    _at_least(config, 1, "model.width", "model.hidden", "training.steps", "training.batch")
    _at_least(config, 1, "generation.hidden", "generation.block", "generation.latent", "engine.workers")
    _at_least(config, 2, "model.layers")
    _at_least(config, 1, "evaluation.every", "evaluation.batch", "checkpoint.every")
    _at_least(config, 0, "seed", "partition.seed", "data.image_size", "generation.head_scale", "alignment.weight")
    _at_least(config, 0, "training.rate", "generation.shared_rate", "generation.personal_rate")
    _at_least(config, 0, "engine.inbox_bytes", "shared.rate")
    _at_least(config, 1, "sbm.nodes", "sbm.edges", "sbm.features", "sbm.classes", "sbm.blocks")
    _at_least(config, 0, "sbm.signal", "sbm.seed", "model.dropout", "cost.exponent")
    generation = config.generation
    for key, value in (
        ("sbm.within", config.sbm.within),
        ("shared.served_average", config.shared.served_average),
        ("generation.served_average", generation.served_average),
        ("generation.served_strength", generation.served_strength),
    ):
        if not 0 <= value <= 1:
            raise ConfigError(f"{key} is {value}; it has to lie between 0 and 1")
    if not 0 < config.partition.alpha < float("inf"):
        raise ConfigError(f"partition.alpha is {config.partition.alpha}; it has to be a number above 0")
    if not 0 < config.partition.train_share < 1:
        raise ConfigError(f"partition.train_share is {config.partition.train_share}; it has to lie between 0 and 1")
    if config.model.dropout >= 1:
        raise ConfigError(f"model.dropout is {config.model.dropout}; it has to lie below 1")
    federation, clients = config.federation, config.partition.clients
    budgets = config.budgets
    for text in config.evaluation.sizes:
        Budget.parse(text)
    if not budgets:
        raise ConfigError("federation.budgets is empty; name at least one fraction")
    if len({budget.fraction for budget in budgets}) != len(budgets):
        raise ConfigError(f"federation.budgets {federation.budgets} names a fraction twice; give each one share")
    if len(federation.shares) != len(budgets):
        raise ConfigError(
            f"federation.shares has {len(federation.shares)} entries for {len(budgets)} budgets; give one share each"
        )
    if min(federation.shares) < 0:
        raise ConfigError(
            f"federation.shares {federation.shares} have a negative one; give each budget a share of at least 0"
        )
    if not abs(sum(federation.shares) - 1) <= 1e-9:
        raise ConfigError(
            f"federation.shares {federation.shares} sum to {sum(federation.shares):.10g}; change them to sum to 1"
        )
    if federation.participants > clients:
        raise ConfigError(
            f"federation.participants is {federation.participants}, more than the {clients} clients; "
            "lower it or raise partition.clients"
        )


def _at_least(config: Config, least: int, *keys: str) -> None:
    for key in keys:
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part)
        if not value >= least or value != value or value == float("inf"):
            raise ConfigError(f"{key} is {value}; it has to be a number of at least {least}")
