from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from framp import federation as federation_module
from framp import rng
from framp.client import Client
from framp.config import Config
from framp.data import Dataset
from framp.data.clients import ClientData
from framp.engines import Engine, Serial
from framp.errors import BudgetError, ConfigError, FrampError
from framp.federation import Federation, enrol, parts_over
from framp.messages import LocalTraining, Message, Reply
from framp.models import Architecture, MultiExit, ResNet18
from framp.stage2_extraction import DepthWidth
from framp.stage3_objective import Aligned
from framp.wire import Traffic, Wire

MakeConfig = Callable[[dict[str, Any]], Config]
MakeFederation = Callable[..., Federation]


class Own(nn.Module):
    """A network of the user's own: a biased convolution, no norm, a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 5, 3, stride=2)
        self.hidden = nn.Linear(45, 12)
        self.output = nn.Linear(12, 4)

    def features(self, images: Tensor) -> Tensor:
        maps = torch.relu(self.convolution(images))
        return torch.relu(self.hidden(maps.flatten(1)))

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.output(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class OnlyParts(Own):
    """No more than what `framp.models` asks of a network: features and head."""

    forward = nn.Module.forward


def digests(federation: Federation, rounds: int) -> list[str]:
    return [federation.server.digest() for _ in federation.train(rounds)]


def test_a_federation_is_a_function_of_its_configuration(toy_federation: MakeFederation) -> None:
    first = toy_federation()
    found = digests(first, 3)
    assert len(set(found)) == 3
    torch.manual_seed(99)
    torch.rand(5)
    again = toy_federation()
    assert digests(again, 3) == found
    assert first.evaluate() == again.evaluate()
    assert first.rounds_played == 3
    other = toy_federation({"seed": 1})
    assert not set(digests(other, 3)) & set(found)
    for one, two in zip(first.data.partition.train, other.data.partition.train, strict=True):
        np.testing.assert_array_equal(one, two)  # the seed leaves the partition as it is


def test_looking_at_a_federation_changes_nothing(toy_federation: MakeFederation) -> None:
    watched, alone = toy_federation(), toy_federation()
    for _ in range(2):
        watched.evaluate()
        watched.personal_model(0)
        watched.play_round()
        alone.play_round()
    assert watched.server.digest() == alone.server.digest()


def test_reports_follow_the_rounds(toy_federation: MakeFederation) -> None:
    federation = toy_federation()
    assert federation.play_round().round == 1
    assert [report.round for report in federation.train(2)] == [2, 3]
    assert federation.evaluate().round == 3


def test_a_federation_goes_on_from_a_saved_state(toy_federation: MakeFederation) -> None:
    straight, resumed = toy_federation(), toy_federation()
    expected = digests(straight, 4)
    first = toy_federation()
    digests(first, 2)
    resumed.server.load(first.server.state())
    resumed.rounds_played = 2
    assert digests(resumed, 2) == expected[2:]


def share_right(model: nn.Module, dataset: Dataset, rows: np.ndarray) -> float:
    """The accuracy of a model on test images, from the arrays themselves."""
    mean, std = (torch.tensor(moments, dtype=torch.float32).view(-1, 1, 1) for moments in (dataset.mean, dataset.std))
    images = (torch.from_numpy(dataset.test.images[rows]).float() / 255 - mean) / std
    with torch.no_grad():
        answers = model(images).argmax(dim=1).numpy()
    return float((answers == dataset.test.labels[rows]).mean())


@pytest.mark.parametrize("recipe", ["framp", "fiarse", "fedavg"])
def test_accuracies_are_those_of_the_models_handed_out(
    recipe: str, toy_federation: MakeFederation, toy_dataset: Dataset
) -> None:
    federation = toy_federation({"recipe": recipe, "training.steps": 6, "evaluation.sizes": ["1/4"]})
    for _ in federation.train(4):
        pass
    found = federation.evaluate()
    tests = federation.data.partition.test
    own = [share_right(federation.personal_model(client), toy_dataset, tests[client]) for client in range(6)]
    assert found.clients == pytest.approx(own, abs=1e-12)
    assert found.local == pytest.approx(np.mean(own), abs=1e-12)
    groups = {"1/8": np.mean(own[:2]), "1/2": np.mean(own[2:4]), "1": np.mean(own[4:])}
    assert found.groups == pytest.approx(groups, abs=1e-12)
    assert list(found.union_by_size) == ["1/8", "1/2", "1", "1/4"]
    sizes = [found.union_by_size[name] for name in ("1/8", "1/2", "1")]
    assert found.union == pytest.approx(np.mean(sizes), abs=1e-12)
    everybody = np.concatenate(tests)
    if recipe != "framp":  # the shared model is the Union model
        for name, accuracy in found.union_by_size.items():
            model = federation.personal_model(0, name)
            assert accuracy == pytest.approx(share_right(model, toy_dataset, everybody), abs=1e-12)
    if recipe == "fedavg":
        assert len(set(found.union_by_size.values())) == 1
    assert max(own) > 0.4  # it is not all chance


def test_a_personal_model_is_zero_outside_its_submodel(toy_federation: MakeFederation) -> None:
    federation = toy_federation()
    federation.play_round()
    layout = federation.server.layout
    for client, held in ((0, 193), (2, 772), (4, 1544)):
        model = federation.personal_model(client)
        vector = layout.flatten(model)
        assert int(vector[: layout.maskable].count_nonzero()) == held
        part = federation.server.personal(client, 1)
        if part.indices is not None:
            assert torch.equal(vector[: layout.maskable].nonzero().squeeze(1), part.indices.long())
            assert torch.equal(vector[part.indices], part.values)
        full = federation.server.method.backbone.serve(client)
        assert torch.equal(vector[layout.maskable :], full[layout.maskable :])
        assert not model.training
    smaller = layout.flatten(federation.personal_model(4, "1/8"))
    assert int(smaller[: layout.maskable].count_nonzero()) == 193


@pytest.mark.parametrize("recipe", ["heterofl", "fedrolex"])
def test_a_personal_model_of_a_width_method_is_a_smaller_network(recipe: str, toy_federation: MakeFederation) -> None:
    """Of widths 4, 8 and 16 (1544 parameters), 193 hold a network of 1, 2 and 4, 772 one of 3, 5 and 10."""
    federation = toy_federation({"recipe": recipe})
    federation.play_round()
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for client, widths in ((0, (1, 2, 4)), (2, (3, 5, 10)), (4, (4, 8, 16))):
        model = federation.personal_model(client)
        convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
        assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == [
            (1, widths[0]), (widths[0], widths[1]), (widths[1], widths[2])
        ]  # fmt: skip
        assert [tuple(layer.weight.shape[:2]) for layer in convolutions] == [
            (layer.out_channels, layer.in_channels) for layer in convolutions
        ]
        norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
        assert tuple(layer.num_features for layer in norms) == widths
        (classifier,) = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
        assert (classifier.in_features, classifier.out_features) == (widths[2], 4)
        held = 9 * (widths[0] + widths[0] * widths[1] + widths[1] * widths[2]) + 4 * widths[2] + 4
        assert sum(parameter.numel() for parameter in model.parameters()) == held + 2 * sum(widths)
        assert held <= federation.registry.budget(client).limit(1544)
        assert model(images).shape == (5, 4)
        assert not model.training
        assert all(parameter.requires_grad for parameter in model.parameters())
    smaller = federation.personal_model(4, "1/2")
    assert sum(parameter.numel() for parameter in smaller.parameters()) == 9 * (3 + 15 + 50) + 44 + 2 * 18


def test_a_personal_model_of_scalefl_ends_early(toy_federation: MakeFederation) -> None:
    federation = toy_federation({"recipe": "scalefl"})
    federation.play_round()
    extractor = federation.server.method.extractor
    assert isinstance(extractor, DepthWidth)
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for client in range(6):
        model = federation.personal_model(client)
        assert isinstance(model, MultiExit)
        assert model.active == extractor.level(federation.registry.budget(client)).exits
        assert torch.equal(model(images), model.exit_logits(images)[-1])
        part = federation.server.personal(client, 1)
        assert sum(parameter.numel() for parameter in model.parameters()) == len(part.values) + len(part.always)


def test_a_personal_model_is_the_users_to_change(toy_federation: MakeFederation) -> None:
    federation = toy_federation({"recipe": "fedavg"})
    before = federation.server.digest()
    with torch.no_grad():
        for parameter in federation.personal_model(0).parameters():
            parameter.fill_(3)
    assert federation.server.digest() == before


@pytest.mark.parametrize("client", [-1, 6, 99])
def test_a_client_that_there_is_not_is_named(client: int, toy_federation: MakeFederation) -> None:
    with pytest.raises(FrampError) as caught:
        toy_federation().personal_model(client)
    assert str(caught.value) == f"there is no client {client}; the clients are numbered from 0 to 5"


@dataclass
class Watched:
    """An engine that notes on how many threads it works."""

    inner: Engine
    threads: set[int] = field(default_factory=set)
    traffic = Traffic()

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        self.threads.add(torch.get_num_threads())
        return self.inner.exchange(messages)

    def close(self) -> None:
        self.inner.close()


def test_the_number_of_threads_is_the_callers(toy_federation: MakeFederation) -> None:
    torch.set_num_threads(2)
    try:
        federation = toy_federation()
        assert torch.get_num_threads() == 2
        federation.engine = engine = Watched(federation.engine)
        federation.play_round()
        federation.evaluate()
        federation.personal_model(0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert engine.threads == {1}
    alone = toy_federation()
    alone.play_round()
    assert alone.server.digest() == federation.server.digest()


@pytest.mark.parametrize("recipe", ["framp", "fiarse"])
def test_a_network_of_the_users_own_from_arrays(recipe: str, toy_dataset: Dataset, toy_config: MakeConfig) -> None:
    train, test = toy_dataset.train, toy_dataset.test
    config = toy_config({"recipe": recipe, "training.steps": 10, "alignment.weight": 0.1})
    with Federation.from_arrays(
        (train.images[:, 0], train.labels), (test.images[:, 0], test.labels), config, Own, classes=4
    ) as federation:
        assert federation.server.layout.maskable == federation.server.layout.size == 50 + 46 * 12 + 13 * 4
        assert isinstance(federation.engine, Serial)
        reports = list(federation.train(8))
        found = federation.evaluate()
        assert reports[-1].loss is not None
        assert reports[0].loss is not None
        assert reports[-1].loss < reports[0].loss
        assert found.groups["1"] > 0.5
        assert isinstance(federation.personal_model(1), Own)


@pytest.mark.parametrize("recipe", ["framp", "fedavg"])
def test_features_and_head_are_enough(recipe: str, toy_federation: MakeFederation) -> None:
    """`framp.models`: a network of the user's own needs only features(images) and head(features)."""
    federation = toy_federation({"recipe": recipe}, OnlyParts)
    federation.play_round()
    assert len(federation.evaluate().clients) == 6


def test_resnet_in_float64(toy_federation: MakeFederation) -> None:
    federation = toy_federation(
        {"training.batch": 20, "generation.hidden": 2}, lambda: ResNet18(1, 4, 2, "group").double()
    )
    federation.play_round()
    assert federation.server.layout.dtype == torch.float64
    assert all(tensor.dtype in (torch.float64, torch.int64) for tensor in federation.server.state().values())
    assert len(federation.evaluate().clients) == 6


@pytest.mark.parametrize("recipe", ["framp", "framp-no-personalisation", "fiarse"])
def test_a_budget_too_small_for_the_model_is_refused(recipe: str, toy_federation: MakeFederation) -> None:
    with pytest.raises(BudgetError, match=r"budget 1/2000 of a model with 1544 parameters holds none of them"):
        toy_federation({"recipe": recipe, "federation.budgets": ["1/2000", "1/2", "1"]})


@pytest.mark.parametrize("ask", ["further size", "personal model"])
def test_a_size_too_small_for_the_model_is_refused_as_well(ask: str, toy_federation: MakeFederation) -> None:
    def further_size() -> object:
        return toy_federation({"evaluation.sizes": ["1/2000"]}).evaluate()

    def personal_model() -> object:
        return toy_federation().personal_model(0, "1/2000")

    with pytest.raises(FrampError, match="1/2000"):
        {"further size": further_size, "personal model": personal_model}[ask]()


class Borrowed:
    """Stands in for worker processes; notes whether they were ended."""

    ended = 0

    def __init__(self, architecture: Architecture, data: ClientData, workers: int, wire: Wire, active: bool) -> None:
        self._serial = Serial(Client(architecture, data, active), wire)
        self.traffic = wire.traffic

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        return self._serial.exchange(messages)

    def close(self) -> None:
        type(self).ended += 1


def test_a_federation_that_cannot_be_made_leaves_no_workers(
    toy_federation: MakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation_module, "Processes", Borrowed)
    monkeypatch.setattr(Borrowed, "ended", 0)
    with pytest.raises(BudgetError):
        toy_federation({"engine.name": "processes", "federation.budgets": ["1/2000", "1/2", "1"]})
    assert Borrowed.ended == 1


def test_handing_out_a_model_leaves_the_global_generator_alone(toy_federation: MakeFederation) -> None:
    made = toy_federation()
    before = torch.get_rng_state()
    made.personal_model(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_settings_reach_the_parts_they_are_for(toy_federation: MakeFederation) -> None:
    values: dict[str, Any] = {
        "training.steps": 3,
        "training.batch": 5,
        "training.rate": 0.25,
        "data.augment": True,
        "federation.participants": 2,
        "alignment.weight": 0.3,
        "seed": 11,
    }
    server = toy_federation(values).server
    task = server.task(1, 4, server.inbox())
    assert task.training == LocalTraining(3, 5, 0.25, True)
    assert task.objective == Aligned(0.3, "head", "mean")
    assert task.seed == rng.number(11, 4, 1, "task")
    assert len(server.sample(1)) == 2


def test_prototypes_average_as_configured(toy_federation: MakeFederation) -> None:
    plain, weighted = (toy_federation({"alignment.average": average}) for average in ("plain", "weighted"))
    for made in (plain, weighted):
        made.play_round()
    one, other = plain.server.prototypes, weighted.server.prototypes
    assert torch.equal(one.counts, other.counts)
    assert not torch.allclose(one.vectors, other.vectors, atol=1e-4)


def test_an_unknown_recipe_is_named(toy_federation: MakeFederation) -> None:
    with pytest.raises(ConfigError, match=r"unknown recipe 'frmap'; did you mean 'framp'\?"):
        toy_federation({"recipe": "frmap"})


def test_clients_send_features_only_where_the_method_wants_them(toy_federation: MakeFederation) -> None:
    for recipe, shape in (("framp", (6, 128)), ("framp-onehot", (6, 0)), ("fiarse", (6, 0))):
        federation = toy_federation({"recipe": recipe})
        assert federation.registry.descriptors.shape == shape
        assert federation.registry.samples.tolist() == [len(rows) for rows in federation.data.partition.train]
        assert federation.registry.group.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_registry_can_be_brought_along(
    toy_federation: MakeFederation, toy_dataset: Dataset, toy_config: MakeConfig
) -> None:
    first = toy_federation()
    registry = enrol(first.config, first.engine)
    again = Federation(parts_over(toy_dataset, toy_config({})), registry)
    assert again.registry is registry
    assert again.server.digest() == first.server.digest()
