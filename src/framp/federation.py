"""A federation: data, clients, server and engine put together. The whole of FRAMP from Python, without a run folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from torch import nn

from framp.budgets import Budget, assign
from framp.client import Client
from framp.client.workspace import Workspace
from framp.config import Config
from framp.data import Dataset, GraphSet
from framp.data.clients import ClientData, dealt, held
from framp.data.kinds import Kind
from framp.engines import Engine, Processes, Serial
from framp.engines.allocator import give_back_freed_memory
from framp.errors import FrampError
from framp.evaluation import Evaluation, evaluate
from framp.layout import ParameterLayout
from framp.messages import Describe, Description, LocalTraining, Manner
from framp.models import Architecture, NamedArchitecture, feature_width, initialised
from framp.recipes import find
from framp.server import GlobalPrototypes, Method, Registry, RoundReport, Server, play
from framp.stage1_generation import feature_seed
from framp.stage2_extraction.network import Network
from framp.threads import one_thread
from framp.wire import Wire


@dataclass(frozen=True)
class Parts:
    """What a federation is made of, before anything has been sent."""

    config: Config
    data: ClientData
    architecture: Architecture


def parts_of(config: Config) -> Parts:
    """Load the data that a configuration names, deal them out, and choose the network."""
    return _parts(dealt(config), config, None)


def parts_over(dataset: Dataset | GraphSet, config: Config, architecture: Architecture | None = None) -> Parts:
    """Deal a data set out, and choose the network unless the user brought one."""
    return _parts(held(dataset, config), config, architecture)


def _parts(data: ClientData, config: Config, architecture: Architecture | None) -> Parts:
    named = NamedArchitecture(config.model, data.kind, data.dataset.classes)
    return Parts(config, data, find(config.recipe).network(architecture or named))


class Federation:
    """Clients and their server, ready to play rounds."""

    @one_thread()
    def __init__(self, parts: Parts, registry: Registry | None = None) -> None:
        self.config, self.data, self.architecture = parts.config, parts.data, parts.architecture
        self.engine = _engine(parts)
        kind, classes = self.data.kind, self.data.dataset.classes
        try:
            self.registry = registry or enrol(self.config, self.engine)
            self.server = build_server(self.config, self.architecture, kind, classes, self.registry)
            self._further_sizes = [Budget.parse(size) for size in self.config.evaluation.sizes]
            for size in self._further_sizes:
                self.server.require(size)
        except BaseException:
            self.engine.close()
            raise
        self.rounds_played = 0

    @classmethod
    def from_config(cls, config: Config) -> "Federation":
        """Put together what a configuration describes."""
        return cls(parts_of(config))

    @classmethod
    def from_arrays(
        cls,
        train: tuple[np.ndarray, np.ndarray],
        test: tuple[np.ndarray, np.ndarray],
        config: Config,
        architecture: Architecture | None = None,
        classes: int | None = None,
    ) -> "Federation":
        """Put together a federation over uint8 images [N, C, H, W] and labels, with a network of the user's own.

        `classes` is their number where labels are missing; else it is the largest label plus one.
        """
        return cls(parts_over(Dataset.from_arrays(config.name, *train, *test, classes), config, architecture))

    @classmethod
    def from_graph(
        cls, data: Any, config: Config, architecture: Architecture | None = None, classes: int | None = None
    ) -> "Federation":
        """Put together a federation over subgraphs of a PyTorch Geometric `Data`, with a network of the user's own.

        `classes` is their number where labels are missing; else it is the largest label plus one.
        """
        return cls(parts_over(GraphSet.from_pyg(config.name, data, classes), config, architecture))

    @one_thread()
    def play_round(self) -> RoundReport:
        """Play the next round."""
        report = play(self.server, self.engine, self.rounds_played + 1)
        self.rounds_played += 1
        return report

    def train(self, rounds: int) -> Iterator[RoundReport]:
        """Play some rounds, one at each step of the iteration."""
        for _ in range(rounds):
            yield self.play_round()

    @one_thread()
    def evaluate(self) -> Evaluation:
        """Evaluate all clients' models and the Union model as they are now."""
        settings = self.config.evaluation
        manner = Manner(settings.batch, settings.own_classes, settings.norm == "static")
        return evaluate(self.server, self.engine, self.rounds_played, manner, self._further_sizes)

    @one_thread()
    def personal_model(self, client: int, budget: str | None = None) -> nn.Module:
        """Return a client's own network as it is now: a smaller one, or a full one with zeros outside its submodel."""
        clients = len(self.registry.samples)
        if not 0 <= client < clients:
            raise FrampError(f"there is no client {client}; the clients are numbered from 0 to {clients - 1}")
        size = None if budget is None else Budget.parse(budget)
        workspace = Workspace(self.architecture, self.data.dataset.classes, active=False)
        workspace.load(self.server.personal(client, self.rounds_played, size))
        workspace.model.zero_grad(set_to_none=True)
        return workspace.model.eval()

    def close(self) -> None:
        """End the engine's processes."""
        self.engine.close()

    def __enter__(self) -> "Federation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def enrol(config: Config, engine: Engine) -> Registry:
    """Ask every client for its descriptor (and its number of samples), and register it with its budget."""
    clients, features = config.partition.clients, find(config.recipe).wants_features
    asked = (Describe(client, feature_seed(config.seed), features) for client in range(clients))
    descriptions = (reply for reply in engine.exchange(asked) if isinstance(reply, Description))
    return Registry.enrol(config.budgets, assign(config.budgets, config.federation.shares, clients), descriptions)


def _engine(parts: Parts) -> Engine:
    wire, active = Wire(parts.config.wire.values), parts.config.training.execution == "active"
    if parts.config.engine.name == "processes":
        return Processes(parts.architecture, parts.data, parts.config.engine.workers, wire, active)
    return Serial(Client(parts.architecture, parts.data, active), wire)


def build_server(config: Config, architecture: Architecture, kind: Kind, classes: int, registry: Registry) -> Server:
    """Set the recipe's parts up over a registry, for a network over some kind of samples."""
    recipe = find(config.recipe)
    model = initialised(architecture, config.seed)
    layout, width = ParameterLayout.of(model), feature_width(model, kind, classes)
    initial = layout.flatten(model)
    network = Network(architecture, layout, kind)
    work = network.counted_work()
    del model
    give_back_freed_memory()
    described = recipe.descriptors
    descriptors = None if described is None else described.configured(config, registry.descriptors, kind, classes)
    method = Method(
        recipe.backbone.configured(config, initial, layout, descriptors),
        recipe.extractor.configured(config, network),
        recipe.objective.configured(config),
        descriptors,
    )
    training = config.training
    return Server(
        method,
        layout,
        registry,
        LocalTraining(
            training.steps,
            training.batch,
            training.rate,
            config.data.augment,
            training.momentum,
            training.weight_decay,
            training.clip,
        ),
        GlobalPrototypes(classes, width, layout.dtype, config.alignment.average == "weighted"),
        config.federation.participants,
        config.seed,
        config.engine.inbox_bytes,
        work,
    )
