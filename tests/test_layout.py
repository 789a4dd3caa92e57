import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.budgets import Budget
from framp.errors import ModelError
from framp.layout import Entry, ParameterLayout
from framp.models import ResNet18, SmallCNN


class Own(nn.Module):
    """A user's network: biased convolution, norms, a bare parameter, a dead parameter and a nested part."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.norm = nn.GroupNorm(1, 2)
        self.convolution = nn.Conv2d(1, 2, 3)
        self.inner = nn.ModuleDict({"head": nn.Linear(2, 3), "norm": nn.LayerNorm(3)})

    def forward(self, images: Tensor) -> Tensor:
        maps = self.norm(self.convolution(images)) * self.scale
        logits: Tensor = self.inner["norm"](self.inner["head"](maps.mean(dim=(2, 3))))
        return logits


def test_a_layout_by_hand() -> None:
    layout = ParameterLayout.of(Own())
    assert layout.entries == (
        Entry("convolution.weight", (2, 1, 3, 3), 0),
        Entry("convolution.bias", (2,), 18),
        Entry("inner.head.weight", (3, 2), 20),
        Entry("inner.head.bias", (3,), 26),
        Entry("scale", (), 29),
        Entry("norm.weight", (2,), 30),
        Entry("norm.bias", (2,), 32),
        Entry("inner.norm.weight", (3,), 34),
        Entry("inner.norm.bias", (3,), 37),
    )
    assert (layout.maskable, layout.size, layout.dtype) == (29, 40, torch.float32)
    assert [entry.stop for entry in layout.entries] == [18, 20, 26, 29, 30, 32, 34, 37, 40]


@pytest.mark.parametrize(("classes", "maskable"), [(10, 11_164_362), (100, 11_210_532)])
def test_the_papers_network_has_the_papers_size(classes: int, maskable: int) -> None:
    with torch.device("meta"):
        layout = ParameterLayout.of(ResNet18(3, classes))
    assert layout.maskable == maskable
    assert layout.size - layout.maskable == 9600
    assert Budget.parse("1/64").limit(layout.maskable) == {10: 174_443, 100: 175_164}[classes]
    assert layout.entries[0].name == "stem.0.weight"
    assert [entry.name for entry in layout.entries if entry.stop == maskable] == ["classifier.bias"]


def test_maskable_entries_are_in_the_order_of_the_modules() -> None:
    names = [entry.name for entry in ParameterLayout.of(ResNet18(1, 10, width=2)).entries]
    blocks = []
    for block in range(8):
        blocks += [f"blocks.{block}.conv1.weight", f"blocks.{block}.conv2.weight"]
        blocks += [f"blocks.{block}.shortcut.0.weight"] if block in (2, 4, 6) else []
    expected = ["stem.0.weight", *blocks, "classifier.weight", "classifier.bias"]
    assert names[: len(expected)] == expected
    assert all(".norm" in name or "shortcut.1" in name or "stem.1" in name for name in names[len(expected) :])


@pytest.mark.parametrize("module", [Own(), SmallCNN(3, 5, 4), ResNet18(1, 3, 2, "group"), SmallCNN(1, 2, 4).double()])
def test_entries_cover_the_vector_once(module: nn.Module) -> None:
    layout = ParameterLayout.of(module)
    place = 0
    for entry in layout.entries:
        assert entry.start == place
        place = entry.stop
    assert place == layout.size == sum(parameter.numel() for parameter in module.parameters())
    assert {entry.name: entry.shape for entry in layout.entries} == {
        name: tuple(parameter.shape) for name, parameter in module.named_parameters()
    }
    assert layout.maskable in {entry.stop for entry in layout.entries}
    assert layout.dtype == next(module.parameters()).dtype


def test_views_are_the_vectors_own_memory() -> None:
    layout = ParameterLayout.of(Own())
    vector = torch.arange(40.0)
    views = layout.views(vector)
    assert views["inner.head.weight"].tolist() == [[20, 21], [22, 23], [24, 25]]
    assert views["scale"].item() == 29
    views["convolution.bias"][1] = -7
    assert vector[19] == -7
    vector[29] = 5
    assert views["scale"].item() == 5
    for view in views.values():
        assert view.untyped_storage().data_ptr() == vector.untyped_storage().data_ptr()


@given(st.integers(0, 2**32))
def test_flatten_and_views_are_inverse(seed: int) -> None:
    module = Own()
    layout = ParameterLayout.of(module)
    vector = torch.randn(layout.size, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(layout.views(vector)[name])
    flat = layout.flatten(module)
    assert torch.equal(flat, vector)
    flat.zero_()
    assert torch.equal(layout.flatten(module), vector)


def test_a_bound_model_trains_in_the_vectors() -> None:
    torch.manual_seed(0)
    module, reference = SmallCNN(1, 3, 4), SmallCNN(1, 3, 4)
    reference.load_state_dict(module.state_dict())
    layout = ParameterLayout.of(module)
    weights, gradient = layout.flatten(module), torch.zeros(layout.size)
    layout.bind(module, weights, gradient)
    images, labels = torch.randn(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        gradient.zero_()
        F.cross_entropy(module(images), labels).backward()  # type: ignore[no-untyped-call]
        weights -= 0.1 * gradient
        optimiser.zero_grad()
        F.cross_entropy(reference(images), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        assert gradient.count_nonzero() > 0
        for name, parameter in reference.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(layout.views(gradient)[name], parameter.grad, atol=1e-6, rtol=0)
    torch.testing.assert_close(weights, layout.flatten(reference), atol=1e-6, rtol=0)
    assert torch.equal(layout.flatten(module), weights)


def test_a_model_bound_without_gradients_has_none() -> None:
    module = Own()
    layout = ParameterLayout.of(module)
    layout.bind(module, torch.zeros(layout.size), torch.zeros(layout.size))
    layout.bind(module, torch.ones(layout.size))
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(bool((parameter == 1).all()) for parameter in module.parameters())


class Tied(nn.Module):
    """Two linear layers that share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.two.weight = self.one.weight

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.two(self.one(rows))
        return output


def test_tied_parameters_are_held_once() -> None:
    module = Tied()
    layout = ParameterLayout.of(module)
    assert [entry.name for entry in layout.entries] == ["one.weight", "one.bias"]
    assert (layout.maskable, layout.size) == (12, 12)
    vector = torch.cat([2 * torch.eye(3).flatten(), torch.tensor([1.0, 0, 0])])
    gradient = torch.zeros(12)
    layout.bind(module, vector, gradient)
    assert module(torch.ones(1, 3)).tolist() == [[6, 4, 4]]  # 2(2x + b)
    module(torch.ones(1, 3)).sum().backward()
    # Σ_i y_i = Σ_ij W_ij z_j with z = W x + b = (3, 2, 2): ∂/∂W = z + 2x, ∂/∂b = 2
    assert gradient.tolist() == [5, 4, 4] * 3 + [2, 2, 2]


def test_a_model_that_is_all_maskable() -> None:
    layout = ParameterLayout.of(nn.Sequential(nn.Conv1d(2, 3, 2), nn.Conv3d(1, 1, 1, bias=False)))
    assert (layout.maskable, layout.size) == (16, 16)


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(4), nn.BatchNorm1d(4), nn.InstanceNorm2d(4, track_running_stats=True)]
)
def test_running_statistics_are_refused(layer: nn.Module) -> None:
    with pytest.raises(ModelError) as caught:
        ParameterLayout.of(nn.Sequential(nn.Linear(2, 2), nn.Sequential(layer)))
    assert str(caught.value) == (
        "layer '1.0' keeps running statistics, which cannot be generated or merged; "
        "pass track_running_stats=False or use GroupNorm"
    )


@pytest.mark.parametrize("module", [nn.LayerNorm(4), nn.Identity()])
def test_a_model_without_maskable_layers_is_refused(module: nn.Module) -> None:
    with pytest.raises(ModelError) as caught:
        ParameterLayout.of(module)
    assert str(caught.value) == ("the model has no layer with a weight matrix, so there is nothing to extract from")


def test_mixed_types_are_refused() -> None:
    with pytest.raises(ModelError) as caught:
        ParameterLayout.of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    assert str(caught.value) == (
        "the model mixes parameter types ['torch.float32', 'torch.float64']; convert it to one of them"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types_that_the_server_does_not_compute_with_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ModelError) as caught:
        ParameterLayout.of(nn.Linear(2, 2).to(dtype))
    assert str(caught.value) == f"the model's parameters are {dtype}; convert it with .float() or .double()"


@pytest.mark.parametrize(
    ("layer", "maskable"),
    [
        (nn.LSTM(3, 4), 4 * 4 * (3 + 4) + 2 * 16),
        (nn.MultiheadAttention(4, 2), 3 * 4 * 4 + 12 + 4 * 4 + 4),
        (nn.Embedding(5, 3), 15),
        (nn.ConvTranspose2d(2, 3, 2), 2 * 3 * 4 + 3),
        (nn.Sequential(nn.Linear(2, 3), nn.LayerNorm((3, 2)), nn.RMSNorm((3, 2)), nn.PReLU()), 9),
    ],
    ids=["lstm", "attention", "embedding", "transposed convolution", "norms of two dimensions"],
)
def test_all_weights_count_towards_the_budget(layer: nn.Module, maskable: int) -> None:
    assert ParameterLayout.of(layer).maskable == maskable


def test_a_model_with_too_many_parameters_is_refused() -> None:
    with pytest.raises(ModelError) as caught, torch.device("meta"):
        ParameterLayout.of(nn.Linear(2**16, 2**15, bias=False))
    assert str(caught.value) == f"the model has {2**31} parameters; more than {2**31 - 1} cannot be numbered"
