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


def setting(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    """Declare a field with its default, its explanation and, where there are only a few, its values."""
    metadata = {"help": help, "choices": choices}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class DataConfig:
    """Which images, and how they are read."""

    source: str = setting("digits", "where the images come from", ("digits", "huggingface"))
    path: str = setting("", "huggingface: the name of a set on the hub, or a local folder of parquet files")
    image_column: str = setting("img", "huggingface: the column that holds the images")
    label_column: str = setting("label", "huggingface: the column that holds the class numbers")
    train_split: str = setting("train", "huggingface: the split to train on")
    test_split: str = setting("test", "huggingface: the split to test on")
    image_size: int = setting(0, "resize to this height and width; 0 keeps the size of the set")
    augment: bool = setting(False, "random crop (padding 1/8) and horizontal flip while training")


@dataclass(frozen=True)
class PartitionConfig:
    """Who holds which samples."""

    clients: int = setting(20, "number of clients")
    kind: str = setting(
        "dirichlet",
        "how labels are spread: equal sizes, unequal sizes, alike, or a few classes each",
        ("dirichlet", "dirichlet-unbalanced", "iid", "pathological"),
    )
    alpha: float = setting(0.3, "concentration of the Dirichlet priors; small means very different clients")
    classes_per_client: int = setting(2, "pathological: number of classes each client holds")
    test: str = setting(
        "matched",
        "a client's test labels follow its own training prior, or a prior drawn afresh",
        ("matched", "independent"),
    )
    seed: int = setting(0, "the partition's own seed; the run's seed leaves the partition as it is")


@dataclass(frozen=True)
class ModelConfig:
    """The full network from which submodels are extracted."""

    name: str = setting("cnn", "the architecture", ("cnn", "resnet18"))
    width: int = setting(32, "channels of the first stage")
    norm: str = setting("batch", "batch statistics (never running ones), or group norm", ("batch", "group"))


@dataclass(frozen=True)
class FederationConfig:
    """Who takes part, with which budget."""

    budgets: list[str] = setting(["1/64", "1/16", "1/4", "1"], "fractions of the full model that clients can hold")
    shares: list[float] = setting([0.25, 0.25, 0.25, 0.25], "share of the clients with each budget; they sum to 1")
    participants: int = setting(10, "clients sampled in each round")


@dataclass(frozen=True)
class TrainingConfig:
    """Stage 3: what a client does with its submodel."""

    steps: int = setting(10, "T, local steps of SGD a round")
    batch: int = setting(32, "mini-batch size")
    rate: float = setting(0.1, "α, the local learning rate")
    momentum: float = setting(
        0.0, "of SGD, anew in each round; 0.9 in HeteroFL's, FedRolex' and ScaleFL's own settings"
    )
    weight_decay: float = setting(0.0, "of SGD; 5e-4 in HeteroFL's and ScaleFL's own settings, 1e-3 in FedRolex'")
    clip: float = setting(0.0, "largest norm of a gradient, 0 for none; 1 in HeteroFL's and FedRolex' own settings")


@dataclass(frozen=True)
class SharedConfig:
    """Stage 1: the one model of the methods that have one for everybody; as published unless set otherwise."""

    rate: float = setting(1.0, "rate at which the model follows the mean of the participants' changes")
    served_average: float = setting(
        1.0, "models in use have its running average; this is the newest round's weight, 1 for no average"
    )


@dataclass(frozen=True)
class GenerationConfig:
    """Stage 1: the hypernetwork and how it learns."""

    hidden: int = setting(64, "width of the hidden layer, the rank of what is personal")
    shared_rate: float = setting(2.0, "rate of the head's bias, the part of the model that everybody shares")
    personal_rate: float = setting(0.06, "β, rate of the head's weights and the layer below: the personal part")
    shared_mean: str = setting(
        "participants",
        "the shared part moves by the mean over all participants, or over those who held an entry",
        ("participants", "holders"),
    )
    head_scale: float = setting(0.0, "initial head weights, as a multiple of each layer's own scale")
    centred: bool = setting(True, "the head sees hidden features less those of the average client")
    served_strength: float = setting(
        0.4, "how personal the models in use are: 1 as they are trained, 0 the average client's"
    )
    served_average: float = setting(
        0.1, "models in use have the shared part's running average; this is the newest round's weight, 1 for no average"
    )
    standardise: bool = setting(True, "standardise descriptors over the training clients")
    refresh_every: int = setting(10, "rounds after which trained descriptors are made anew")
    extractor_epochs: int = setting(1, "passes in which a participant trains the feature extractor of its descriptor")
    extractor_rate: float = setting(0.01, "rate of that training")


@dataclass(frozen=True)
class AlignmentConfig:
    """Stage 3: representation alignment."""

    weight: float = setting(0.2, "λ, weight of the alignment term")
    distance: str = setting(
        "head",
        "distance of batch and global prototypes, or how the client's head confuses the global ones",
        ("mse", "squared", "euclidean", "head"),
    )
    reduction: str = setting("mean", "over the classes", ("mean", "sum"))
    average: str = setting(
        "plain", "global prototype: each holder counts once, or by its samples of the class", ("plain", "weighted")
    )


@dataclass(frozen=True)
class WidthConfig:
    """Stage 2: methods that cut channels."""

    rule: str = setting(
        "budget",
        "the widest network within the budget, or the original √γ of each layer's channels, which can be over it",
        ("budget", "original"),
    )
    test_window: str = setting(
        "last",
        "channels of a rolling window's models in use: those of the last round, or the first",
        ("last", "prefix"),
    )


@dataclass(frozen=True)
class ScoreConfig:
    """Stage 2: entries by a learned score."""

    rate: float = setting(1.0, "rate of the score network")


@dataclass(frozen=True)
class ExitsConfig:
    """Stage 3: networks with several exits."""

    distillation: float = setting(0.05, "weight of the earlier exits' distillation from the last")
    temperature: float = setting(3.0, "at which predictions are softened")
    distillation_start: float = setting(0.25, "share of the rounds before distillation starts")
    distillation_form: str = setting(
        "paper",
        "as in the paper, or as in the authors' code: mean over the classes too, gradient also through the teacher",
        ("paper", "code"),
    )


@dataclass(frozen=True)
class EvaluationConfig:
    """When and on what the models are evaluated."""

    every: int = setting(5, "rounds between evaluations; the last round is always evaluated")
    batch: int = setting(100, "test batch size (batch statistics depend on it)")
    sizes: list[str] = setting([], "further sizes of the Union model to evaluate, also ones never trained")
    own_classes: bool = setting(
        False, "set a client's logits of classes that its training data do not have to 0, as HeteroFL's code does"
    )
    norm: str = setting(
        "batch",
        "batch norms at test time: each batch's statistics, or static ones of training data as HeteroFL has them",
        ("batch", "static"),
    )


@dataclass(frozen=True)
class EngineConfig:
    """How the work is carried out; no result depends on it."""

    name: str = setting("serial", "one process, or one worker process a core", ("serial", "processes"))
    workers: int = setting(2, "worker processes")
    inbox_bytes: int = setting(8 << 20, "updates that the server keeps in memory during a round; more wait on disk")


@dataclass(frozen=True)
class CheckpointConfig:
    """When the state is written to disk; no result depends on it."""

    every: int = setting(5, "rounds between checkpoints")


@dataclass(frozen=True)
class Config:
    """A complete run."""

    name: str = setting("run", "the preset's name, for headings")
    recipe: str = setting("framp", "the method: see `framp recipes`")
    rounds: int = setting(40, "communication rounds")
    seed: int = setting(0, "seed of the initial network, the sampling of clients and the batches")
    data: DataConfig = field(default_factory=DataConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    federation: FederationConfig = field(default_factory=FederationConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    shared: SharedConfig = field(default_factory=SharedConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    alignment: AlignmentConfig = field(default_factory=AlignmentConfig)
    width: WidthConfig = field(default_factory=WidthConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    exits: ExitsConfig = field(default_factory=ExitsConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
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
    _at_least(config, 1, "model.width", "training.steps", "training.batch", "generation.hidden", "engine.workers")
    _at_least(config, 1, "evaluation.every", "evaluation.batch", "checkpoint.every")
    _at_least(config, 0, "seed", "partition.seed", "data.image_size", "generation.head_scale", "alignment.weight")
    _at_least(config, 0, "training.rate", "generation.shared_rate", "generation.personal_rate")
    _at_least(config, 0, "engine.inbox_bytes", "shared.rate")
    generation = config.generation
    for key, value in (
        ("shared.served_average", config.shared.served_average),
        ("generation.served_average", generation.served_average),
        ("generation.served_strength", generation.served_strength),
    ):
        if not 0 <= value <= 1:
            raise ConfigError(f"{key} is {value}; it has to lie between 0 and 1")
    if not 0 < config.partition.alpha < float("inf"):
        raise ConfigError(f"partition.alpha is {config.partition.alpha}; it has to be a number above 0")
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
