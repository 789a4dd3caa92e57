from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.data.kinds import Images
from framp.errors import ModelError
from framp.layout import ParameterLayout
from framp.models import MultiExit, ResNet18, SmallCNN
from framp.structure import Axis, Structure
from framp.tracing import trace

IMAGE = (3, 8, 8)


class Toy(nn.Module):
    """A user's network, put together from layers and a function that runs them."""

    def __init__(
        self, layers: dict[str, nn.Module], run: Callable[[Any, Tensor], Tensor], classifier: nn.Module
    ) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.run, self.classifier = run, classifier

    def features(self, images: Tensor) -> Tensor:
        return self.run(self, images)

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


def axes_of(
    module: nn.Module, image: tuple[int, ...] = IMAGE
) -> tuple[Structure, dict[str, list[list[tuple[Any, ...]]]]]:
    """The structure of a network, and of each parameter what lies along each of its dimensions."""
    layout = ParameterLayout.of(module)
    structure = trace(module, layout, Images(*image))
    assert len(structure.axes) == len(structure.used) == len(structure.classes) == len(layout.entries)
    for entry, axes in zip(layout.entries, structure.axes, strict=True):
        assert tuple(length(axis) for axis in axes) == entry.shape
    plain = [[[(s.group, s.channels, s.block) for s in axis] for axis in axes] for axes in structure.axes]
    return structure, {entry.name: axes for entry, axes in zip(layout.entries, plain, strict=True)}


def length(axis: Axis) -> int:
    return sum(segment.channels * segment.block for segment in axis)


def pooled(maps: Tensor) -> Tensor:
    return maps.mean(dim=(2, 3))


def whole(*sizes: int) -> list[list[tuple[None, int, int]]]:
    return [[(None, size, 1)] for size in sizes]


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_the_small_network(norm: str) -> None:
    structure, axes = axes_of(SmallCNN(3, 5, 4, norm))
    assert structure.widths == (4, 8, 16)
    first, second, third = (0, 4, 1), (1, 8, 1), (2, 16, 1)
    assert axes == {
        "stages.0.0.weight": [[first], *whole(3, 3, 3)],
        "stages.1.0.weight": [[second], [first], *whole(3, 3)],
        "stages.2.0.weight": [[third], [second], *whole(3, 3)],
        "classifier.weight": [*whole(5), [third]],
        "classifier.bias": whole(5),
        "stages.0.1.weight": [[first]],
        "stages.0.1.bias": [[first]],
        "stages.1.1.weight": [[second]],
        "stages.1.1.bias": [[second]],
        "stages.2.1.weight": [[third]],
        "stages.2.1.bias": [[third]],
    }
    assert all(structure.used)
    assert structure.classes == (None, None, None, 0, 0, *[None] * 6)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_what_a_shortcut_joins_is_one_group(norm: str) -> None:
    """Four residual streams, one a stage, and the inner channels of each of the eight blocks."""
    structure, axes = axes_of(ResNet18(3, 10, 2, norm))
    assert sorted(structure.widths) == sorted([2, 4, 8, 16] + 2 * [2, 4, 8, 16])
    streams = [axes["stem.0.weight"][0], *(axes[f"blocks.{block}.conv2.weight"][0] for block in (2, 4, 6))]
    inner = []
    for block in range(8):
        own, before = streams[block // 2], streams[max(block - 1, 0) // 2]
        assert axes[f"blocks.{block}.conv1.weight"][1] == before
        assert axes[f"blocks.{block}.conv2.weight"][0] == own
        assert axes[f"blocks.{block}.norm2.bias"][0] == own
        inner.append(axes[f"blocks.{block}.conv1.weight"][0])
        assert axes[f"blocks.{block}.conv2.weight"][1] == axes[f"blocks.{block}.norm1.weight"][0] == inner[-1]
        if block in (2, 4, 6):
            shortcut = f"blocks.{block}.shortcut"
            assert axes[f"{shortcut}.0.weight"] == [own, before, *whole(1, 1)]
            assert axes[f"{shortcut}.1.weight"] == [own]
    assert axes["classifier.weight"] == [*whole(10), streams[3]]
    numbers = [group for axis in streams + inner for group, _, _ in axis]
    assert sorted(numbers) == list(range(12))
    assert all(structure.used)


def test_each_neighbouring_place_of_a_flattened_map_belongs_to_its_channel() -> None:
    toy = Toy({"conv": nn.Conv2d(3, 4, 3)}, lambda self, x: F.relu(self.conv(x)).flatten(1), nn.Linear(4 * 36, 5))
    structure, axes = axes_of(toy)
    assert structure.widths == (4,)
    assert axes["classifier.weight"] == [*whole(5), [(0, 4, 36)]]
    assert axes["conv.bias"] == [[(0, 4, 1)]]
    entry = next(n for n, entry in enumerate(ParameterLayout.of(toy).entries) if entry.name == "classifier.weight")
    rows, columns = structure.positions(entry, [np.array([1, 3])])
    assert rows.tolist() == list(range(5))
    assert columns.tolist() == [*range(36, 72), *range(108, 144)]


def test_concatenated_channels_lie_side_by_side() -> None:
    toy = Toy(
        {"left": nn.Conv2d(3, 2, 1), "right": nn.Conv2d(3, 4, 1),
         "norm": nn.GroupNorm(1, 9), "after": nn.Conv2d(9, 6, 1)},
        lambda self, x: pooled(self.after(self.norm(torch.cat([self.left(x), x, self.right(x)], dim=1)))),
        nn.Linear(6, 5),
    )  # fmt: skip
    structure, axes = axes_of(toy)
    left, right = axes["left.weight"][0], axes["right.weight"][0]
    joined = [*left, (None, 3, 1), *right]
    assert axes["after.weight"][1] == joined
    assert axes["norm.weight"] == axes["norm.bias"] == [joined]
    number = [entry.name for entry in ParameterLayout.of(toy).entries].index("norm.weight")
    kept = {left[0][0]: np.array([1]), right[0][0]: np.array([0, 2]), axes["after.weight"][0][0][0]: np.array([0])}
    (places,) = structure.positions(number, [kept[group] for group in range(3)])
    assert places.tolist() == [1, 2, 3, 4, 5, 7]


def test_a_depthwise_convolution_goes_along_with_its_input() -> None:
    toy = Toy(
        {"conv": nn.Conv2d(3, 4, 1), "each": nn.Conv2d(4, 8, 3, groups=4), "after": nn.Conv2d(8, 2, 1)},
        lambda self, x: pooled(self.after(self.each(self.conv(x)))),
        nn.Linear(2, 5),
    )
    structure, axes = axes_of(toy)
    assert structure.widths == (4, 2)
    assert axes["each.weight"] == [[(0, 4, 2)], *whole(1, 3, 3)]
    assert axes["each.bias"] == [[(0, 4, 2)]]
    assert axes["after.weight"] == [[(1, 2, 1)], [(0, 4, 2)], *whole(1, 1)]


def test_a_parameter_used_twice_ties_both_uses() -> None:
    twice = nn.Conv2d(4, 4, 1)
    toy = Toy(
        {"conv": nn.Conv2d(3, 4, 1), "first": twice, "second": twice},
        lambda self, x: pooled(self.second(F.relu(self.first(self.conv(x))))),
        nn.Linear(4, 5),
    )
    structure, axes = axes_of(toy)
    assert structure.widths == (4,)  # what goes in is what comes out
    assert axes["first.weight"] == [[(0, 4, 1)], [(0, 4, 1)], *whole(1, 1)]
    assert axes["conv.weight"][0] == axes["classifier.weight"][1] == [(0, 4, 1)]


def test_what_is_added_to_the_images_is_never_cut() -> None:
    toy = Toy(
        {"conv": nn.Conv2d(3, 3, 1), "after": nn.Conv2d(3, 2, 1)},
        lambda self, x: pooled(self.after(x + self.conv(x))),
        nn.Linear(2, 5),
    )
    structure, axes = axes_of(toy)
    assert structure.widths == (2,)
    assert axes["conv.weight"] == whole(3, 3, 1, 1)
    assert axes["after.weight"] == [[(0, 2, 1)], *whole(3, 1, 1)]


class Bare(nn.Module):
    """Layers between bare parameters: one along the channels, one that no channel follows, one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.slope = nn.Parameter(torch.ones(1))
        self.inner = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.idle = nn.Linear(7, 2)
        self.out = nn.Linear(6, 5, bias=False)

    def features(self, images: Tensor) -> Tensor:
        maps = self.conv(images) * self.scale + self.slope
        features: Tensor = self.norm(self.inner(pooled(maps)))
        return features

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.out(features)
        return logits


def test_a_users_network_with_layer_norm_and_bare_parameters() -> None:
    structure, axes = axes_of(Bare())
    assert structure.widths == (4, 6)
    assert axes["scale"] == [[(0, 4, 1)], *whole(1, 1)]
    assert axes["slope"] == whole(1)
    assert axes["inner.weight"] == [[(1, 6, 1)], [(0, 4, 1)]]
    assert axes["norm.weight"] == axes["norm.bias"] == axes["inner.bias"] == [[(1, 6, 1)]]
    assert axes["out.weight"] == [*whole(5), [(1, 6, 1)]]
    used = dict(zip(axes, structure.used, strict=True))
    assert [name for name, is_used in used.items() if not is_used] == ["idle.weight", "idle.bias"]
    assert axes["idle.weight"] == whole(2, 7)


def test_classes_may_be_the_channels_of_a_convolution() -> None:
    toy = Toy(
        {"conv": nn.Conv2d(3, 4, 1), "last": nn.Conv2d(4, 5, 3)},
        lambda self, x: pooled(self.last(self.conv(x))),
        nn.Identity(),
    )
    structure, axes = axes_of(toy)
    assert structure.widths == (4,)
    assert axes["last.weight"] == [*whole(5), [(0, 4, 1)], *whole(3, 3)]
    assert structure.classes == (None, None, 0, 0)


def test_each_exit_has_the_classes() -> None:
    model = MultiExit(SmallCNN(3, 5, 4))
    layout = ParameterLayout.of(model)
    structure = trace(model, layout, Images(*IMAGE), lambda module, images: module.exit_logits(images))  # type: ignore[operator]
    classes = {entry.name: of for entry, of in zip(layout.entries, structure.classes, strict=True) if of is not None}
    heads = ("network.classifier", "exits.0", "exits.1")
    assert classes == {f"{head}.{kind}": 0 for head in heads for kind in ("weight", "bias")}
    assert structure.widths == (4, 8, 16)
    assert all(structure.used)
    last = trace(model, layout, Images(*IMAGE))
    unused = [entry.name for entry, used in zip(layout.entries, last.used, strict=True) if not used]
    assert unused == ["exits.0.weight", "exits.0.bias", "exits.1.weight", "exits.1.bias"]


def refused(run: Callable[[Any, Tensor], Tensor], classifier: nn.Module | None = None) -> str:
    toy = Toy({"conv": nn.Conv2d(3, 4, 1), "groups": nn.Conv2d(4, 4, 1, groups=2)}, run, classifier or nn.Linear(4, 5))
    with pytest.raises(ModelError) as caught:
        axes_of(toy)
    return str(caught.value)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda self, x: pooled(torch.cumsum(self.conv(x), dim=1)), "operation 'cumsum' is not known"),
        (lambda self, x: pooled(self.conv(x).permute(0, 1, 3, 2)), "operation 'permute' is not known"),
        (lambda self, x: pooled(self.groups(self.conv(x))), "a convolution has groups of several channels"),
        (lambda self, x: self.conv(x).mean(dim=(1, 2))[:, :4], "operation 'mean' mixes the channels"),
        (lambda self, x: pooled(self.conv(x) + torch.ones(4, 1, 1)), "added to something that does not follow"),
        (lambda self, x: pooled(self.conv(x) + self.conv(x).mean(1, True)), "mixes the channels"),
        (lambda self, x: pooled(self.conv(x).reshape(2, 2, 16, 8))[:, :1].expand(-1, 4), "a view turns (2, 4, 8, 8)"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced_is_named(run: Callable[[Any, Tensor], Tensor], why: str) -> None:
    message = refused(run)
    assert message.startswith("the channels of Toy cannot be traced: ")
    assert why in message
    assert message.endswith("take a TopK method")
    assert "\n" not in message


def test_classes_that_are_no_layers_output_are_refused() -> None:
    message = refused(lambda self, x: pooled(x), nn.Identity())
    assert "the classes are not the output of one last layer" in message
