"""The settings of a run by section: frozen records, each field with its default and its own explanation.

`framp.config` puts them together, reads and writes them.
"""

from dataclasses import dataclass, field
from typing import Any


def setting(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    """Declare a field with its default, its explanation and, where there are only a few, its values."""
    metadata = {"help": help, "choices": choices}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class DataConfig:
    """Which images or which graph, and how they are read."""

    source: str = setting(
        "digits",
        "where images (the first two) or a graph come from",
        ("digits", "huggingface", "sbm", "planetoid", "arxiv", "pyg"),
    )
    path: str = setting(
        "",
        "huggingface: the name of a set on the hub, or a local folder of parquet files; planetoid, arxiv: a local "
        "folder of raw files, empty for a download; pyg: a file with a saved Data",
    )
    graph: str = setting("Cora", "planetoid: which of its graphs", ("Cora", "CiteSeer", "PubMed"))
    image_column: str = setting("img", "huggingface: the column that holds the images")
    label_column: str = setting("label", "huggingface: the column that holds the class numbers")
    train_split: str = setting("train", "huggingface: the split to train on")
    test_split: str = setting("test", "huggingface: the split to test on")
    image_size: int = setting(0, "resize to this height and width; 0 keeps the size of the set")
    augment: bool = setting(False, "random crop (padding 1/8) and horizontal flip of images while training")


@dataclass(frozen=True)
class SbmConfig:
    """The generated graph (data.source sbm): a degree-corrected block model with features."""

    nodes: int = setting(4000, "number of nodes")
    edges: int = setting(16000, "number of edges, each counted once; one less than the nodes at least")
    features: int = setting(64, "features of a node: its class's centre and noise of deviation 1")
    classes: int = setting(10, "number of classes")
    blocks: int = setting(40, "number of blocks; each belongs to a class, and each class has several")
    within: float = setting(0.7, "share of the edges that stay within a block")
    signal: float = setting(0.3, "deviation of the class's centres, beside the noise")
    seed: int = setting(0, "the graph's own seed")


@dataclass(frozen=True)
class PartitionConfig:
    """Who holds which samples."""

    clients: int = setting(20, "number of clients")
    kind: str = setting(
        "dirichlet",
        "how images' labels are spread: equal sizes, unequal sizes, alike, or a few classes each; "
        "how a graph is cut into subgraphs: by METIS, by Louvain's communities, or at random",
        ("dirichlet", "dirichlet-unbalanced", "iid", "pathological", "metis", "louvain", "random"),
    )
    alpha: float = setting(0.3, "concentration of the Dirichlet priors; small means very different clients")
    classes_per_client: int = setting(2, "pathological: number of classes each client holds")
    test: str = setting(
        "matched",
        "a client's test labels follow its own training prior, or a prior drawn afresh",
        ("matched", "independent"),
    )
    train_share: float = setting(
        0.4, "of a graph's nodes, the share to train on; half of the rest is tested, the other half left for validation"
    )
    seed: int = setting(0, "the partition's own seed; the run's seed leaves the partition as it is")


@dataclass(frozen=True)
class ModelConfig:
    """The full network from which submodels are extracted."""

    name: str = setting("cnn", "the architecture: of images, of images, of graphs", ("cnn", "resnet18", "gcn"))
    width: int = setting(32, "cnn, resnet18: channels of the first stage")
    norm: str = setting(
        "batch", "cnn, resnet18: batch statistics (never running ones), or group norm", ("batch", "group")
    )
    layers: int = setting(4, "gcn: graph convolutions, the last one the classifier")
    hidden: int = setting(128, "gcn: features between the layers")
    dropout: float = setting(0.0, "gcn: share of the hidden features dropped while training")


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
    batch: int = setting(32, "mini-batch size; of a subgraph, all training nodes are one batch")
    rate: float = setting(0.1, "α, the local learning rate")
    execution: str = setting(
        "active",
        "layers of active weights alone where that is faster and the kernels were compiled, or whole ones with zeros",
        ("active", "dense"),
    )
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
    head: str = setting(
        "full",
        "what makes the personal part of a model: one matrix, or for large models codes and bases block by block",
        ("full", "blocks"),
    )
    block: int = setting(4096, "head blocks: the most entries of a block; longer rows of a weight tensor are cut")
    latent: int = setting(64, "head blocks: numbers in a block's code; a block with no more entries is its own code")
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
class CostConfig:
    """Stage 2: entries by their magnitude against their cost in multiply-adds."""

    budget: str = setting(
        "both",
        "a budget γ holds γ of the parameters, and of the multiply-adds too or whatever the parameters take",
        ("both", "parameters"),
    )
    exponent: float = setting(0.25, "p of the score |w| / cost^p; 0 for magnitude alone")


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
class WireConfig:
    """How values travel between the server and its clients."""

    values: str = setting(
        "fp32",
        "of submodels and updates: without loss, rounded to half precision, or as bytes with a scale for each tensor; "
        "what is rounded is trained and merged as it arrives",
        ("fp32", "fp16", "bf16", "int8"),
    )


@dataclass(frozen=True)
class CheckpointConfig:
    """When the state is written to disk; no result depends on it."""

    every: int = setting(5, "rounds between checkpoints")
