"""Networks of a user's own: those that can be narrowed run at any width, the others are refused at the start."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from framp.budgets import Budget
from framp.client.workspace import Workspace
from framp.config import Config
from framp.data.kinds import Images
from framp.errors import ModelError
from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.stage2_extraction import WidthPrefix
from framp.stage2_extraction.network import Network


class Own(nn.Module):
    """A convolution, something in the middle, a head."""

    def __init__(self, first: nn.Module, middle: nn.Module, then: Callable[[Tensor], Tensor], width: int = 8) -> None:
        super().__init__()
        self.first, self.middle, self.then = first, middle, then
        self.classifier = nn.Linear(width, 3)

    def features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.middle(self.first(images))
        return self.then(maps)

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


def pooled(maps: Tensor) -> Tensor:
    return maps.mean(dim=(2, 3))


def convolution() -> nn.Module:
    return nn.Conv2d(1, 8, 3)


def extractor(build: Callable[[], nn.Module]) -> tuple[WidthPrefix, ParameterLayout]:
    layout = ParameterLayout.of(build())
    return WidthPrefix.configured(Config(), Network(build, layout, Images(1, 8, 8))), layout


@pytest.mark.parametrize(
    "build",
    [
        lambda: Own(convolution(), nn.Conv2d(8, 8, 3, groups=8), pooled),
        lambda: Own(convolution(), nn.Conv2d(8, 16, 3, groups=8), pooled, 16),
        lambda: Own(convolution(), nn.ConvTranspose2d(8, 6, 3), pooled, 6),
        lambda: Own(convolution(), nn.GroupNorm(1, 8), pooled),
        lambda: Own(convolution(), nn.Flatten(), nn.LayerNorm(288), 288),
    ],
    ids=["depthwise", "depthwise, twice as many", "transposed", "one group", "layer norm"],
)
def test_any_width_after_any_other_runs(build: Callable[[], nn.Module]) -> None:
    width, layout = extractor(build)
    workspace = Workspace(build, 3)
    vector = torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    for name in ("1", "1/6", "1/2", "1/4", "1"):
        chosen = width.select(vector[: layout.maskable], Budget.parse(name), 1)
        below = torch.arange(layout.maskable) if chosen.indices is None else chosen.indices.long()
        above = vector[layout.maskable :] if chosen.always is None else vector[layout.maskable :][chosen.always]
        workspace.load(Submodel(layout.maskable, chosen.indices, vector[below], above, chosen.shapes))
        logits = workspace.model.head(workspace.model.features(torch.ones(2, 1, 8, 8)))  # type: ignore[operator]
        assert logits.shape == (2, 3)
        if name == "1":
            expected = build()
            layout.bind(expected, vector.clone())
            torch.testing.assert_close(logits, expected.head(expected.features(torch.ones(2, 1, 8, 8))))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: Own(convolution(), nn.GroupNorm(4, 8), pooled), "cannot be narrowed"),
        (lambda: Own(convolution(), nn.LayerNorm((8, 6, 6)), pooled), "a layer norm works along other dimensions"),
        (lambda: Own(convolution(), nn.LayerNorm(6), pooled), "a layer norm works along other dimensions"),
        (lambda: Own(convolution(), nn.Identity(), lambda maps: pooled(maps).view(-1, 8)), "cannot be narrowed"),
        (
            lambda: Own(convolution(), nn.Identity(), lambda maps: pooled(F.pad(maps, (0, 0, 0, 0, 2, 2))), 12),
            "channels are padded or cropped",
        ),
        (lambda: Own(parametrizations.weight_norm(nn.Conv2d(1, 8, 3)), nn.ReLU(), pooled), "no parameter but computed"),
    ],
    ids=["group norm", "layer norm of maps", "layer norm of rows", "fixed view", "padded channels", "weight norm"],
)
def test_what_cannot_be_narrowed_is_refused_with_the_reason(build: Callable[[], nn.Module], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        extractor(build)
