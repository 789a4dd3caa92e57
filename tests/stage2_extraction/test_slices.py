from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.client.workspace import Workspace
from framp.data.kinds import Images
from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.models import ResNet18, SmallCNN
from framp.stage2_extraction import Selection
from framp.stage2_extraction.slices import Slices
from framp.tracing import trace

IMAGE = (3, 8, 8)


def sliced(module: nn.Module) -> Slices:
    layout = ParameterLayout.of(module)
    return Slices(trace(module, layout, Images(*IMAGE)), layout)


def places(slices: Slices, selection: Selection) -> tuple[Tensor, Tensor]:
    """Where a selection's entries lie: in the flat vector, and among those that always travel."""
    maskable, size = slices.layout.maskable, slices.layout.size
    if selection.indices is None:
        assert (selection.shapes, selection.always) == (None, None)
        return torch.arange(maskable), torch.arange(size - maskable)
    assert selection.always is not None
    return selection.indices.long(), selection.always


class Tiny(nn.Module):
    """Two channels, then two features, then two classes: few enough to write out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1)
        self.norm = nn.GroupNorm(1, 2)
        self.out = nn.Linear(2, 2)

    def features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.norm(self.conv(images))
        return maps.mean(dim=(2, 3))

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.out(features)
        return logits


def test_a_cut_by_hand() -> None:
    """conv.weight 0..1, conv.bias 2..3, out.weight 4..7, out.bias 8..9 | norm.weight, norm.bias."""
    module = Tiny()
    layout = ParameterLayout.of(module)
    slices = Slices(trace(module, layout, Images(1, 4, 4)), layout)
    second = slices.cut([np.array([1])])
    assert second.indices is not None
    assert second.always is not None
    assert second.class_rows is not None
    assert second.indices.tolist() == [1, 3, 5, 7, 8, 9]
    assert second.indices.dtype == torch.int32
    assert second.always.tolist() == [1, 3]
    assert second.shapes == ((1, 1, 1, 1), (1,), (2, 1), (2,), (1,), (1,))
    assert second.class_rows.tolist() == [[2, 3, 4, 5], [0, 1, 0, 1]]
    whole = slices.cut([np.arange(2)])
    assert whole.class_rows is not None
    assert whole.class_rows.tolist() == [[4, 5, 6, 7, 8, 9], [0, 0, 1, 1, 0, 1]]


def test_widths_are_rounded_up_and_counted() -> None:
    slices = sliced(SmallCNN(3, 5, 4))
    assert slices.widths(Fraction(1, 2)) == [2, 4, 8]
    assert slices.widths(Fraction(1, 3)) == [2, 3, 6]
    assert slices.widths(Fraction(1, 100)) == [1, 1, 1]
    assert slices.count(Fraction(1, 3)) == 9 * (3 * 2 + 2 * 3 + 3 * 6) + 6 * 5 + 5
    assert slices.count(Fraction(1)) == slices.layout.maskable


def test_the_widest_network_by_hand() -> None:
    slices = sliced(SmallCNN(3, 5, 4))
    least = 9 * (3 + 1 + 1) + 5 + 5
    assert slices.largest(least) == Fraction(1, 16)
    assert slices.largest(least - 1) is None
    half = slices.count(Fraction(1, 2))
    assert slices.largest(half) == Fraction(1, 2)
    assert slices.largest(half - 1) == Fraction(7, 16)
    assert slices.largest(slices.layout.maskable) == 1


@given(st.integers(0, 1700))
def test_the_next_wider_network_does_not_fit(limit: int) -> None:
    slices = sliced(SmallCNN(3, 5, 4))
    steps = [Fraction(kept, 16) for kept in range(1, 17)]  # of the widest layer; the others' are among them
    fitting = [ratio for ratio in steps if slices.count(ratio) <= limit]
    assert slices.largest(limit) == (max(fitting) if fitting else None)


NETWORKS: list[Callable[[], nn.Module]] = [lambda: SmallCNN(3, 5, 2).double(), lambda: ResNet18(3, 5, 2).double()]


@pytest.mark.parametrize("network", NETWORKS)
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_a_cut_network_is_the_full_one_with_zeros_outside(network: Callable[[], nn.Module], seed: int) -> None:
    """Whichever channels: the same logits, from fewer of them."""
    slices = sliced(network())
    draw, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    kept = [
        np.sort(draw.choice(width, draw.integers(1, width, endpoint=True), replace=False))
        for width in slices.structure.widths
    ]
    layout = slices.layout
    vector = torch.randn(layout.size, generator=generator, dtype=torch.float64)
    selection = slices.cut(kept)
    below, above = places(slices, selection)
    assert bool((below.diff() > 0).all())
    assert bool((above.diff() > 0).all())
    workspace = Workspace(network, 5)
    workspace.load(
        Submodel(layout.maskable, selection.indices, vector[below], vector[layout.maskable + above], selection.shapes)
    )
    model = workspace.model.eval()

    zeros = torch.zeros_like(vector)
    for inside in (below, layout.maskable + above):
        zeros[inside] = vector[inside]
    full = network().eval()
    layout.bind(full, zeros)
    images = torch.randn(3, *IMAGE, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(model(images), full(images), atol=1e-5, rtol=1e-5)
    assert sum(parameter.numel() for parameter in model.parameters()) == len(below) + len(above)
    assert len(below) == slices.structure.count(layout, [len(channels) for channels in kept])


@pytest.mark.parametrize("network", NETWORKS)
def test_all_channels_are_the_full_network(network: Callable[[], nn.Module]) -> None:
    slices = sliced(network())
    selection = slices.cut([np.arange(width) for width in slices.structure.widths])
    assert (selection.indices, selection.always, selection.shapes) == (None, None, None)
    assert selection.class_rows is not None  # the output layer's rows are known all the same
    head = [entry for entry in slices.layout.entries if entry.name.startswith("classifier.")]
    assert selection.class_rows[0].tolist() == list(range(head[0].start, head[1].stop))
