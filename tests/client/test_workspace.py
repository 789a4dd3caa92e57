import pytest
import torch
from torch import Tensor, nn

from framp.client.workspace import Workspace
from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.models import MultiExit, SmallCNN, WithExits

# 1 input channel, widths 2, 3 and 4 of 4, 8 and 16, 3 classes
SHAPES = (
    (2, 1, 3, 3), (3, 2, 3, 3), (4, 3, 3, 3), (3, 4), (3,), (2,), (2,), (3,), (3,), (4,), (4,)
)  # fmt: skip
HELD, ABOVE = 9 * (2 + 6 + 12) + 12 + 3, 18


def architecture() -> nn.Module:
    return SmallCNN(1, 3, 4)


def full(workspace: Workspace, value: float = 1.0) -> Submodel:
    layout = workspace.full
    return Submodel(
        layout.maskable, None, torch.full((layout.maskable,), value), torch.ones(layout.size - layout.maskable)
    )


def narrow(workspace: Workspace) -> Submodel:
    indices = torch.arange(HELD, dtype=torch.int32)  # which they are does not matter to a smaller network
    return Submodel(workspace.full.maskable, indices, torch.arange(1.0, HELD + 1), torch.full((ABOVE,), 0.5), SHAPES)


def test_a_smaller_network_is_small_and_dense() -> None:
    workspace = Workspace(architecture, 3)
    part = narrow(workspace)
    workspace.load(part)
    assert workspace.layout == workspace.full.part(SHAPES)
    assert (workspace.layout.maskable, workspace.layout.size) == (HELD, HELD + ABOVE)
    assert workspace.weights.shape == workspace.gradient.shape == (HELD + ABOVE,)
    assert torch.equal(workspace.weights[:HELD], part.values)
    assert part.mask() is None
    assert [tuple(parameter.shape) for parameter in workspace.model.parameters()] == [
        (2, 1, 3, 3), (2,), (2,), (3, 2, 3, 3), (3,), (3,), (4, 3, 3, 3), (4,), (4,), (3, 4), (3,)
    ]  # fmt: skip
    convolutions = [layer for layer in workspace.model.modules() if isinstance(layer, nn.Conv2d)]
    assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == [(1, 2), (2, 3), (3, 4)]
    norms = [layer for layer in workspace.model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert [layer.num_features for layer in norms] == [2, 3, 4]
    classifier = workspace.model.classifier
    assert isinstance(classifier, nn.Linear)
    assert (classifier.in_features, classifier.out_features) == (4, 3)


def test_its_gradients_are_in_the_workspaces_vector() -> None:
    workspace = Workspace(architecture, 3)
    workspace.load(narrow(workspace))
    workspace.weights.mul_(1e-3)
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    workspace.model(images).square().sum().backward()
    for entry in workspace.layout.entries:
        gradient = dict(workspace.model.named_parameters())[entry.name].grad
        assert gradient is not None
        assert torch.equal(gradient.reshape(-1), workspace.gradient[entry.start : entry.stop])
    assert workspace.gradient.count_nonzero() > HELD / 2


def test_nothing_is_left_of_the_size_before() -> None:
    workspace, fresh = Workspace(architecture, 3), Workspace(architecture, 3)
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def logits(submodel: Submodel) -> Tensor:
        workspace.load(submodel)
        found: Tensor = workspace.model(images)
        return found

    fresh.load(full(fresh, 0.1))
    expected = fresh.model(images)
    for _ in range(2):
        logits(narrow(workspace))
        assert torch.equal(logits(full(workspace, 0.1)), expected)
        assert workspace.layout == workspace.full
    (first, *_), (other, *_) = workspace.model.parameters(), fresh.model.parameters()
    assert first.shape == other.shape


def test_vectors_are_kept_where_the_size_stays() -> None:
    workspace = Workspace(architecture, 3)
    workspace.load(narrow(workspace))
    address = workspace.weights.data_ptr()
    workspace.load(narrow(workspace))
    assert workspace.weights.data_ptr() == address


def test_what_a_smaller_network_holds_after_training() -> None:
    workspace = Workspace(architecture, 3)
    part = narrow(workspace)
    vector = torch.arange(float(HELD + ABOVE))
    values, always = part.trained(vector)
    assert values.tolist() == list(range(HELD))
    assert always.tolist() == list(range(HELD, HELD + ABOVE))
    assert part.below == HELD


@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.Conv1d(6, 4, 1), nn.Conv2d(6, 4, 3), nn.Conv3d(6, 4, 1)])
def test_layers_know_their_new_sizes_and_the_old_ones_again(layer: nn.Module) -> None:
    layout = ParameterLayout.of(layer)
    weight, bias = (entry.shape for entry in layout.entries)
    small = layout.part(((2, 3, *weight[2:]), (2,)))
    for part, sizes in ((small, (3, 2)), (layout, (6, 4))):
        part.bind(layer, torch.zeros(part.size))
        names = ("in_features", "out_features") if isinstance(layer, nn.Linear) else ("in_channels", "out_channels")
        assert tuple(getattr(layer, name) for name in names) == sizes
    assert bias == (4,)


def test_norms_know_their_new_sizes() -> None:
    for layer, attribute, expected in (
        (nn.BatchNorm2d(6, track_running_stats=False), "num_features", 2),
        (nn.GroupNorm(2, 6), "num_channels", 2),
        (nn.LayerNorm(6), "normalized_shape", (2,)),
        (nn.RMSNorm(6), "normalized_shape", (2,)),
    ):
        module = nn.Sequential(nn.Linear(6, 6), layer)
        layout = ParameterLayout.of(module)
        part = layout.part(((2, 6), (2,), *[(2,)] * (len(layout.entries) - 2)))
        part.bind(module, torch.zeros(part.size))
        assert getattr(layer, attribute) == expected


def test_a_depthwise_convolution_has_a_group_a_channel() -> None:
    layer = nn.Conv2d(4, 8, 3, groups=4)
    layout = ParameterLayout.of(layer)
    for kept in (3, 2, 4):
        part = layout.part(((2 * kept, 1, 3, 3), (2 * kept,)))
        part.bind(layer, torch.zeros(part.size))
        assert (layer.groups, layer.in_channels, layer.out_channels) == (kept, kept, 2 * kept)
        assert layer(torch.zeros(1, kept, 4, 4)).shape == (1, 2 * kept, 2, 2)


def test_a_network_that_ends_early_does_without_the_rest() -> None:
    workspace = Workspace(WithExits(architecture), 3)
    layout = workspace.full
    there = ("network.stages.0.", "exits.0.")
    shapes = tuple(entry.shape if entry.name.startswith(there) else None for entry in layout.entries)
    small = layout.part(shapes)
    assert {entry.name for entry in small.entries} == {
        "network.stages.0.0.weight", "exits.0.weight", "exits.0.bias", "network.stages.0.1.weight",
        "network.stages.0.1.bias",
    }  # fmt: skip
    assert (small.maskable, small.size) == (36 + 12 + 3, 36 + 12 + 3 + 8)
    workspace.load(
        Submodel(layout.maskable, torch.arange(51, dtype=torch.int32), torch.ones(51), torch.ones(8), shapes)
    )
    model = workspace.model
    assert isinstance(model, MultiExit)
    assert list(model.active) == [1]
    assert sum(parameter.numel() for parameter in model.parameters()) == small.size
    assert model(torch.ones(2, 1, 8, 8)).shape == (2, 3)
    above = torch.ones(layout.size - layout.maskable)
    workspace.load(Submodel(layout.maskable, None, torch.ones(layout.maskable), above))
    assert list(model.active) == [1, 2, 3]
