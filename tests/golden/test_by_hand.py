"""Single rules with numbers that can be checked by hand."""

from collections.abc import Sequence
from fractions import Fraction
from math import log

import pytest
import torch
from torch import Tensor, nn

from framp.budgets import Budget
from framp.config import Config
from framp.data.kinds import Images
from framp.layout import ParameterLayout
from framp.messages import LocalTraining, Submodel, Task, Update
from framp.server.inbox import Inbox
from framp.stage1_generation import Hypernetwork, Shared, SharedWhereMoved
from framp.stage2_extraction import Selection, WidthPrefix, WidthRolling
from framp.stage2_extraction.network import Network
from framp.stage3_objective import CrossEntropy, ExitDistillation, Known, LabelMasked, Objective
from framp.stage3_objective.threshold_gradient import Threshold
from framp.updates import Block

EXACT = 1e-14


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def indices(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


# FIARSE


def test_fiarses_factor() -> None:
    """1 + 2θ|w|/(|w|+θ)² at θ = 1/2: 1.5 where |w| = θ, nearer to 1 the larger the weight, 0 below θ."""
    weights = vector(0.5, -0.5, 1.0, 1.5, 4.5, 0.25, 7.0)
    gradient = torch.full((7,), 2.0, dtype=torch.float64)
    Threshold(theta=0.5, maskable=6).gradient(weights, gradient)
    factors = [1.5, 1.5, 1 + 4 / 9, 1 + 3 / 8, 1 + 9 / 50, 0.0, 1.0]  # the last one is above the maskable entries
    assert gradient.tolist() == pytest.approx([2 * factor for factor in factors], abs=EXACT)


def test_fiarses_network_sees_no_weight_below_the_threshold() -> None:
    weights, seen = vector(0.5, -0.5, 0.25, 0.125), torch.empty(4, dtype=torch.float64)
    Threshold(theta=0.5, maskable=3).shown(weights, out=seen)
    assert seen.tolist() == [0.5, -0.5, 0.0, 0.125]


def test_without_a_threshold_fiarse_is_plain_descent() -> None:
    gradient = vector(2.0, -3.0)
    Threshold(theta=0.0, maskable=2).gradient(vector(0.0, 1.0), gradient)
    assert gradient.tolist() == [2.0, -3.0]


def test_fiarses_mean_is_over_those_who_moved() -> None:
    """All three held entry 0 and two moved it: (0.5 + 0.25) / 2, not / 3."""
    backbone = SharedWhereMoved(vector(1.0, 1.0))
    merge(backbone, 2, [held([0, 1], [0.5, 0.0]), held([0, 1], [0.25, 0.0]), held([0], [0.0])])
    assert backbone.vector.tolist() == [1.375, 1.0]
    other = Shared(vector(1.0, 1.0))
    merge(other, 2, [held([0, 1], [0.5, 0.0]), held([0, 1], [0.25, 0.0]), held([0], [0.0])])
    assert other.vector.tolist() == [1.25, 1.0]


# HeteroFL and FedRolex


class FourChannels(nn.Module):
    """Two layers of four channels without biases, and a head for two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 1, bias=False)
        self.second = nn.Conv2d(4, 4, 1, bias=False)
        self.classifier = nn.Linear(4, 2, bias=False)

    def features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.second(self.first(images).relu()).relu()
        return maps.mean(dim=(2, 3))

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


#: 4 + 16 + 8 = 28 parameters; two channels a layer have 2 + 4 + 4 = 10, three have 3 + 9 + 6 = 18.
TWO, THREE = Budget.parse("10/28"), Budget.parse("18/28")


def four_channels() -> Network:
    return Network(FourChannels, ParameterLayout.of(FourChannels()), Images(1, 1, 1))


def first_layer(selection: Selection) -> list[int]:
    assert selection.indices is not None
    return [index for index in selection.indices.tolist() if index < 4]


def test_fedrolexs_window_moves_back_by_one_each_round_and_wraps_around() -> None:
    extractor = WidthRolling.configured(Config(), four_channels())
    weights = torch.zeros(28)
    two = [first_layer(extractor.select(weights, TWO, round)) for round in (1, 2, 3, 4, 5)]
    assert two == [[0, 1], [0, 3], [2, 3], [1, 2], [0, 1]]
    three = [first_layer(extractor.select(weights, THREE, round)) for round in (1, 2, 3, 4, 5)]
    assert three == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3], [0, 1, 2]]


def test_fedrolexs_window_in_every_layer() -> None:
    """Round 2, two of four channels: 0 and 3. second[o][i] is entry 4 + 4o + i, classifier[c][i] entry 20 + 4c + i."""
    found = WidthRolling.configured(Config(), four_channels()).select(torch.zeros(28), TWO, 2).indices
    assert found is not None
    assert found.tolist() == [0, 3, 4, 7, 16, 19, 20, 23, 24, 27]


def test_over_four_rounds_fedrolex_trains_every_channel_equally_often() -> None:
    extractor = WidthRolling.configured(Config(), four_channels())
    for budget, times in ((TWO, 2), (THREE, 3)):
        seen = [channel for round in range(1, 5) for channel in first_layer(extractor.select(vector(), budget, round))]
        assert sorted(seen) == sorted(list(range(4)) * times)


def test_heterofls_slice_is_the_first_channels_of_every_layer() -> None:
    found = WidthPrefix.configured(Config(), four_channels()).select(torch.zeros(28), TWO, 3).indices
    assert found is not None
    assert found.tolist() == [0, 1, 4, 5, 8, 9, 20, 21, 24, 25]


def held(
    entries: Sequence[int], changes: Sequence[float], classes: Sequence[bool] | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What a participant held, by how much it changed, and which classes it has."""
    return indices(*entries), vector(*changes), None if classes is None else torch.tensor(classes)


def merge(
    backbone: Shared,
    maskable: int,
    answers: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    rows: dict[int, int] | None = None,
) -> None:
    """Let a backbone learn from answers as a server does; `rows` says which entries belong to which class."""
    inbox = Inbox(1 << 20)
    for client, (entries, changes, classes) in enumerate(answers):
        places = [place for place, entry in enumerate(entries.tolist()) if entry in (rows or {})]
        of_class = [(rows or {})[int(entries[place])] for place in places]
        objective: Objective = CrossEntropy() if classes is None else LabelMasked()
        empty = vector()
        submodel = Submodel(maskable, entries, backbone.vector[entries], empty)
        task = Task(1, client, client, Budget("1", Fraction(1)), submodel, objective, LocalTraining(1, 1, 0.1), None, 0)
        chosen = Selection(entries, class_rows=torch.tensor([places, of_class], dtype=torch.int64))
        inbox.expect(task, chosen, 0, torch.Size((2, 1)), 1)
        inbox.receive(Update(1, client, client, changes, empty, None, 0.0, classes))
    assert not inbox.rejected
    backbone.learn(inbox.accepted)
    inbox.close()


def test_heterofls_mean_of_each_scalar_is_over_its_holders() -> None:
    """Three overlapping slices of [10, 20, 30, 40, 50].

    Trained values: (11, 22, 33, 44), (13, 24) and (12): the means are (11+13+12)/3 = 12, (22+24)/2 = 23, 33, 44; the
    last entry was nobody's.
    """
    backbone = Shared(vector(10, 20, 30, 40, 50))
    merge(backbone, 5, [held([0, 1, 2, 3], [1, 2, 3, 4]), held([0, 1], [3, 4]), held([0], [2])])
    assert backbone.vector.tolist() == [12, 23, 33, 44, 50]


def test_heterofls_class_rows_are_shared_among_those_who_have_the_class() -> None:
    """Entry 0 is a hidden weight; entries 1, 2 are the row of class 0, and 3, 4 that of class 1.

    The first has both classes and the whole network, the second only class 0, the third only class 1; both have the
    first column alone. Class 0's first column: (1 + 3) / 2; class 1's: (1 + 5) / 2; the hidden weight: (1 + 3 + 5) / 3.
    """
    backbone = Shared(vector(0, 0, 0, 0, 0))
    answers = [
        held([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], [True, True]),
        held([0, 1, 3], [3, 3, 9], [True, False]),
        held([0, 1, 3], [5, 9, 5], [False, True]),
    ]
    merge(backbone, 5, answers, rows={1: 0, 2: 0, 3: 1, 4: 1})
    assert backbone.vector.tolist() == [3, 2, 1, 3, 1]


class Literal(nn.Module):
    """A network whose exits say what they are told to."""

    def __init__(self, *logits: Tensor) -> None:
        super().__init__()
        self.logits = [values.clone().requires_grad_() for values in logits]

    def exit_logits(self, images: Tensor) -> list[Tensor]:
        return self.logits

    def features(self, images: Tensor) -> Tensor:
        return self.logits[-1]

    def head(self, features: Tensor) -> Tensor:
        return features


def known(*classes: bool) -> Known:
    return Known(None, torch.tensor(classes))


def test_heterofls_foreign_logits_are_zero_and_get_no_gradient() -> None:
    """Logits (log 2, 5, 0), class 1 foreign: softmax of (log 2, 0, 0) is (1/2, 1/4, 1/4)."""
    network = Literal(torch.stack([vector(log(2), 5.0, 0.0)]))
    loss = LabelMasked().loss(network, vector(), torch.tensor([0]), known(True, False, True))
    assert loss.item() == pytest.approx(log(2), abs=EXACT)
    loss.backward()  # type: ignore[no-untyped-call]
    assert network.logits[0].grad is not None
    assert network.logits[0].grad.tolist()[0] == pytest.approx([-1 / 2, 0, 1 / 4], abs=EXACT)


# ScaleFL


def test_scalefls_loss_weighs_each_exit_by_its_depth() -> None:
    """Label 0; softmax of the three exits: (1/2, 1/2), (3/4, 1/4), (9/10, 1/10).

    (1·log 2 + 2·log 4/3 + 3·log 10/9) / 6.
    """
    network = Literal(*(torch.stack([vector(log(odds), 0.0)]) for odds in (1, 3, 9)))
    loss = ExitDistillation(0.05, 3.0, 1).in_round(1).loss(network, vector(), torch.tensor([0]), known(True, True))
    assert loss.item() == pytest.approx((log(2) + 2 * log(4 / 3) + 3 * log(10 / 9)) / 6, abs=EXACT)
    loss.backward()  # type: ignore[no-untyped-call]
    slopes = [logits.grad[0, 0].item() for logits in network.logits if logits.grad is not None]
    assert slopes == pytest.approx([-1 / 2 / 6, -2 / 4 / 6, -3 / 10 / 6], abs=EXACT)


def test_scalefls_early_exits_learn_from_the_last_once_distillation_has_started() -> None:
    """T = 3; the last exit's softened prediction is (3/4, 1/4), the first's (1/2, 1/2).

    KD = 9·(3/4·log 3/2 + 1/4·log 1/2). The gradient of KD is 3·(1/2 − 3/4) = −3/4 for the first exit's first logit,
    and nothing for the teacher, whose cross-entropy's is 27/28 − 1.
    """
    network = Literal(torch.stack([vector(0.0, 0.0)]), torch.stack([vector(3 * log(3), 0.0)]))
    objective = ExitDistillation(0.05, 3.0, starts_after=1)
    distillation = 9 * (3 / 4 * log(3 / 2) + 1 / 4 * log(1 / 2))
    plain = log(2) + 2 * log(28 / 27)
    for round, expected in ((1, plain / 3), (2, (plain + 0.05 * distillation) / 3)):
        loss = objective.in_round(round).loss(network, vector(), torch.tensor([0]), known(True, True))
        assert loss.item() == pytest.approx(expected, abs=EXACT)
    loss.backward()  # type: ignore[no-untyped-call]
    slopes = [logits.grad[0, 0].item() for logits in network.logits if logits.grad is not None]
    assert slopes == pytest.approx([(-1 / 2 - 0.05 * 3 / 4) / 3, 2 * (-1 / 28) / 3], abs=EXACT)


def test_scalefls_divergence_is_a_mean_over_the_batch() -> None:
    """The second sample's student agrees with its teacher: half of the first's divergence is left."""
    one = Literal(torch.zeros(1, 2, dtype=torch.float64), torch.stack([vector(3 * log(3), 0.0)]))
    two = Literal(torch.zeros(2, 2, dtype=torch.float64), torch.stack([vector(3 * log(3), 0.0), vector(0.0, 0.0)]))
    objective = ExitDistillation(1.0, 3.0, 0)
    expected = 9 * (3 / 4 * log(3 / 2) + 1 / 4 * log(1 / 2))
    assert objective.distillation(*one.logits).item() == pytest.approx(expected, abs=EXACT)
    assert objective.distillation(*two.logits).item() == pytest.approx(expected / 2, abs=EXACT)


def test_distillation_starts_after_a_quarter_of_the_rounds() -> None:
    objective = ExitDistillation.configured(Config().with_values({"rounds": 40}))
    assert [objective.in_round(round).distils for round in (1, 10, 11, 40)] == [False, False, True, True]


# The hypernetwork


def test_the_hypernetworks_step_with_two_parameters() -> None:
    """v = 2, A = 1, a = 0, so f = 2; W = (1/2, −1/2), b = (1, 1): the model is (2, 0). It was trained to (3, −2).

    Δ = (1, −2), β = 0.1 and the shared rate 1: b + Δ = (2, −1); W + β·Δ·f = (0.7, −0.9); WᵀΔ = 1.5, so
    A + β·1.5·2 = 1.3 and a + β·1.5 = 0.15.
    """
    network = Hypernetwork(
        vector(1).view(1, 1), vector(0), vector(0.5, -0.5).view(2, 1), vector(1, 1), vector(0), False
    )
    descriptors = vector(2).view(1, 1)
    assert network.generate(descriptors[0]).tolist() == [2, 0]
    block = Block(slice(0, 2), vector(1, -2).view(1, 2), vector(1, 1))
    network.learn(descriptors, [block], shared_rate=1.0, personal_rate=0.1, by_holders=False)
    state = {name: tensor.flatten().tolist() for name, tensor in network.state().items()}
    assert state["head.bias"] == pytest.approx([2, -1], abs=EXACT)
    assert state["head.weight"] == pytest.approx([0.7, -0.9], abs=EXACT)
    assert state["inner.weight"] == pytest.approx([1.3], abs=EXACT)
    assert state["inner.bias"] == pytest.approx([0.15], abs=EXACT)


def test_the_centred_hypernetworks_step_with_two_parameters() -> None:
    """As before with v̄ = 1, so f = 2 − 1 = 1, and a is pulled both ways: A + β·1.5·(2 − 1) = 1.15, a stays."""
    network = Hypernetwork(vector(1).view(1, 1), vector(0), vector(0.5, -0.5).view(2, 1), vector(1, 1), vector(1), True)
    descriptors = vector(2).view(1, 1)
    assert network.generate(descriptors[0]).tolist() == [1.5, 0.5]
    block = Block(slice(0, 2), vector(1, -2).view(1, 2), vector(1, 1))
    network.learn(descriptors, [block], shared_rate=1.0, personal_rate=0.1, by_holders=False)
    state = {name: tensor.flatten().tolist() for name, tensor in network.state().items()}
    assert state["head.bias"] == pytest.approx([2, -1], abs=EXACT)
    assert state["head.weight"] == pytest.approx([0.6, -0.7], abs=EXACT)
    assert state["inner.weight"] == pytest.approx([1.15], abs=EXACT)
    assert state["inner.bias"] == pytest.approx([0], abs=EXACT)


@pytest.mark.parametrize("centred", [False, True])
def test_the_hypernetworks_vector_jacobian_product_is_autograds(centred: bool) -> None:
    """A step moves φ by β times the gradient of mean_n ⟨H(v_n; φ), Δ_n⟩, and b by its own rate."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    network = Hypernetwork(draw(4, 3), draw(4), draw(6, 4), draw(6), draw(3), centred)
    descriptors, changes, average = draw(5, 3), draw(5, 6), network.average
    state = {name: tensor.clone().requires_grad_() for name, tensor in network.state().items()}

    def hidden(seen: Tensor) -> Tensor:
        return torch.relu(seen @ state["inner.weight"].T + state["inner.bias"])

    features = hidden(descriptors) - hidden(average) if centred else hidden(descriptors)
    generated = features @ state["head.weight"].T + state["head.bias"]
    gradients = torch.autograd.grad((generated * changes).sum() / 5, list(state.values()))
    rates = {"inner.weight": 0.3, "inner.bias": 0.3, "head.weight": 0.3, "head.bias": 0.7}

    block = Block(slice(0, 6), changes, torch.full((6,), 5.0, dtype=torch.float64))
    network.learn(descriptors, [block], shared_rate=0.7, personal_rate=0.3, by_holders=False)
    for (name, before), gradient in zip(state.items(), gradients, strict=True):
        torch.testing.assert_close(network.state()[name], before.detach() + rates[name] * gradient, atol=1e-14, rtol=0)
