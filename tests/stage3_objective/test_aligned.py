import itertools
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.messages import Prototypes
from framp.stage3_objective import Aligned, Known
from framp.stage3_objective.prototypes import class_means, class_sums

FEATURES = torch.tensor([[1.0, 2.0], [3.0, 6.0], [0.0, 1.0], [5.0, 5.0]], dtype=torch.float64)
LABELS = torch.tensor([2, 2, 0, 3])
# class means: 0 -> (0, 1), 2 -> (2, 4), 3 -> (5, 5); class 1 is not in the batch, class 3 has no prototype
PROTOTYPES = Prototypes(
    torch.tensor([[3.0, 5.0], [9.0, 9.0], [2.0, 2.0], [7.0, 7.0]], dtype=torch.float64), torch.tensor([4, 1, 2, 0])
)
# differences: class 0 -> (3, 4), class 2 -> (0, 2)


def known(prototypes: Prototypes | None) -> Known:
    return Known(prototypes, torch.ones(4, dtype=torch.bool))


@pytest.mark.parametrize(
    ("distance", "reduction", "expected"),
    [
        ("mse", "mean", (25 / 2 + 4 / 2) / 2),
        ("mse", "sum", 25 / 2 + 4 / 2),
        ("squared", "mean", (25 + 4) / 2),
        ("squared", "sum", 25 + 4),
        ("euclidean", "mean", (5 + 2) / 2),
        ("euclidean", "sum", 5 + 2),
    ],
)
def test_misalignment_by_hand(distance: str, reduction: str, expected: float) -> None:
    found = Aligned(1.0, distance, reduction).misalignment(FEATURES, LABELS, PROTOTYPES)
    assert float(found) == pytest.approx(expected, abs=1e-9)


class Linear(nn.Module):
    """Features are the input, logits a linear map of them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.randn(4, 2, generator=generator, dtype=torch.float64)

    def features(self, rows: Tensor) -> Tensor:
        return rows * 1.0

    def head(self, features: Tensor) -> Tensor:
        return features @ self.weight.T


def test_the_loss_is_cross_entropy_and_a_multiple_of_the_misalignment() -> None:
    model = Linear()
    cross_entropy = F.cross_entropy(model.head(FEATURES), LABELS)
    objective = Aligned(0.3, "squared", "sum")
    assert float(objective.loss(model, FEATURES, LABELS, known(None))) == float(cross_entropy)
    loss = objective.loss(model, FEATURES, LABELS, known(PROTOTYPES))
    assert float(loss) == pytest.approx(float(cross_entropy) + 0.3 * 29, abs=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_heads_misalignment_is_its_cross_entropy_on_all_prototypes_there_are(reduction: str) -> None:
    model = Linear()
    terms = []
    for label in range(3):  # class 3 has none; the batch does not matter
        logits = [
            sum(float(w * x) for w, x in zip(row, PROTOTYPES.vectors[label], strict=True)) for row in model.weight
        ]
        terms.append(math.log(sum(math.exp(logit) for logit in logits)) - logits[label])
    expected = sum(terms) / (3 if reduction == "mean" else 1)
    objective = Aligned(0.3, "head", reduction)
    assert float(objective.confusion(model, PROTOTYPES)) == pytest.approx(expected, abs=1e-9)
    cross_entropy = F.cross_entropy(model.head(FEATURES), LABELS)
    loss = objective.loss(model, FEATURES, LABELS, known(PROTOTYPES))
    assert float(loss) == pytest.approx(float(cross_entropy) + 0.3 * expected, abs=1e-9)


def test_without_a_class_that_has_both_there_is_no_term() -> None:
    nobody = Prototypes(PROTOTYPES.vectors, torch.tensor([0, 5, 0, 0]))
    found = Aligned(1.0, "mse").misalignment(FEATURES, LABELS, nobody)
    assert found.shape == ()
    assert float(found) == 0
    model = Linear()
    assert float(Aligned(9.0, "mse").loss(model, FEATURES, LABELS, known(nobody))) == float(
        F.cross_entropy(model.head(FEATURES), LABELS)
    )


def test_the_gradient_flows_through_the_batch_means_by_hand() -> None:
    features = FEATURES.clone().requires_grad_()
    Aligned(1.0, "squared", "sum").misalignment(features, LABELS, PROTOTYPES).backward()  # type: ignore[no-untyped-call]
    # ∂/∂f_i = 2 (mean_c - P_c) / n_c
    assert features.grad is not None
    assert features.grad.tolist() == [[0, 2], [0, 2], [-6, -8], [0, 0]]


def test_at_the_prototype_the_euclidean_gradient_is_finite() -> None:
    features = PROTOTYPES.vectors[:3].clone().requires_grad_()
    found = Aligned(1.0, "euclidean").misalignment(features, torch.tensor([0, 1, 2]), PROTOTYPES)
    found.backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    assert bool(torch.isfinite(features.grad).all())


@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(0, 10**6),
    st.sampled_from(list(itertools.product(["mse", "squared", "euclidean"], ["mean", "sum"]))),
)
def test_misalignment_is_the_transcribed_formula(
    classes: int, width: int, samples: int, seed: int, kind: tuple[str, str]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, width, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (samples,), generator=generator)
    prototypes = Prototypes(
        torch.randn(classes, width, generator=generator, dtype=torch.float64),
        torch.randint(3, (classes,), generator=generator),
    )
    distance, reduction = kind
    distances = []
    for label in range(classes):
        rows = [i for i in range(samples) if int(labels[i]) == label]
        if not rows or int(prototypes.counts[label]) == 0:
            continue
        squares = []
        for j in range(width):
            mean = sum(float(features[i, j]) for i in rows) / len(rows)
            squares.append((mean - float(prototypes.vectors[label, j])) ** 2)
        values = {"mse": sum(squares) / width, "squared": sum(squares), "euclidean": math.sqrt(sum(squares))}
        distances.append(values[distance])
    expected = sum(distances) / (max(len(distances), 1) if reduction == "mean" else 1)
    found = Aligned(1.0, distance, reduction).misalignment(features, labels, prototypes)
    assert float(found) == pytest.approx(expected, abs=1e-6 if distance == "euclidean" else 1e-12)


def test_class_means_by_hand() -> None:
    means = class_means(FEATURES, LABELS, 5)
    assert means.vectors.tolist() == [[0, 1], [0, 0], [2, 4], [5, 5], [0, 0]]
    assert means.counts.tolist() == [1, 0, 2, 1, 0]
    sums, counts = class_sums(FEATURES, LABELS, 5)
    assert sums.tolist() == [[0, 1], [0, 0], [4, 8], [5, 5], [0, 0]]
    assert counts.dtype == torch.int64
