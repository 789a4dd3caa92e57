"""Convolutions by the kernels, of each build that runs here, beside torch's of the same weights with zeros."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from framp.execution.convolution import Convolution
from framp.execution.native import BUILDS, Kernels, available, load

NAMES = [name for name in BUILDS if name in available()]
pytestmark = pytest.mark.skipif(not NAMES, reason="no kernels were compiled: there is no compiler on this machine")


def kernels(name: str) -> Kernels:
    found = load(name)
    assert found is not None
    return found


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(1, 5))
    padding = draw(st.integers(0, size - 1))
    least = max(1, size - 2 * padding)
    return {
        "size": size,
        "padding": padding,
        "stride": draw(st.integers(1, 3)),
        "outputs": draw(st.integers(1, 9)),
        "inputs": draw(st.sampled_from([1, 2, 3, 8, 17, 40])),
        "height": draw(st.integers(least, least + 9)),
        "width": draw(st.integers(least, least + 9)),
        "vectors": draw(st.integers(1, 3)),
        "density": draw(st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0])),
        "seed": draw(st.integers(0, 10**6)),
    }


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=200)
@given(problems())
def test_all_three_passes_are_those_of_the_whole_weight(name: str, problem: dict[str, Any]) -> None:
    found = kernels(name)
    generator = torch.Generator().manual_seed(problem["seed"])

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    shape = (problem["outputs"], problem["inputs"], problem["size"], problem["size"])
    weight = draw(*shape) * (torch.rand(shape, generator=generator) < problem["density"])
    samples = problem["vectors"] * found.lanes(torch.float64)
    x = draw(samples, problem["inputs"], problem["height"], problem["width"]).requires_grad_()
    weight.requires_grad_()
    expected = F.conv2d(x, weight, stride=problem["stride"], padding=problem["padding"])
    slope = draw(*expected.shape)
    of_x, of_weight = torch.autograd.grad(expected, (x, weight), slope)

    places = weight.detach().flatten().nonzero().flatten().int()
    values = weight.detach().flatten()[places.long()].clone()
    convolution = Convolution(found, shape, problem["stride"], problem["padding"], places)
    turned, turned_slope = (tensor.detach().permute(1, 2, 3, 0).contiguous() for tensor in (x, slope))
    forward = convolution.forward(turned, values)
    torch.testing.assert_close(forward.permute(3, 0, 1, 2), expected.detach(), atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(
        convolution.down(turned.shape, values, turned_slope).permute(3, 0, 1, 2), of_x, atol=1e-11, rtol=1e-11
    )
    torch.testing.assert_close(
        convolution.weights(turned, values, turned_slope), of_weight.flatten()[places.long()], atol=1e-11, rtol=1e-11
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_single_active_weight_by_hand(name: str) -> None:
    """Output 1 sees input 2, one pixel to the right and one above, three times as large."""
    found = kernels(name)
    lanes = found.lanes(torch.float32)
    places = torch.tensor([((1 * 4 + 2) * 3 + 0) * 3 + 2], dtype=torch.int32)
    convolution = Convolution(found, (2, 4, 3, 3), 1, 1, places)
    x = torch.arange(4 * 3 * 3, dtype=torch.float32).reshape(4, 3, 3, 1).repeat(1, 1, 1, lanes)
    out = convolution.forward(x, torch.tensor([3.0]))
    expected = torch.zeros(2, 3, 3)
    expected[1] = 3 * torch.tensor([[0, 0, 0], [19, 20, 0], [22, 23, 0]])
    assert torch.equal(out, expected.unsqueeze(3).expand_as(out))
    slope = torch.ones_like(out)
    assert convolution.weights(x, torch.tensor([3.0]), slope).tolist() == [lanes * (19 + 20 + 22 + 23)]
    down = torch.zeros(4, 3, 3)
    down[2] = 3 * torch.tensor([[0, 1, 1], [0, 1, 1], [0, 0, 0]])
    assert torch.equal(convolution.down(x.shape, torch.tensor([3.0]), slope), down.unsqueeze(3).expand_as(x))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("length", [1, 3, 16, 77, 1000])
def test_normalising_is_torchs(name: str, dtype: torch.dtype, tolerance: float, length: int) -> None:
    found = kernels(name)
    generator = torch.Generator().manual_seed(length)
    x, slope = (torch.randn(5, length, generator=generator, dtype=torch.float64).to(dtype) + 3 for _ in range(2))
    weight, bias = torch.randn(2, 5, generator=generator, dtype=torch.float64).to(dtype)
    if length == 1:
        out, means, scales = found.normalise(x, weight, bias, 1e-5)
        torch.testing.assert_close(out, bias.unsqueeze(1))
    else:
        leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
        expected = F.batch_norm(leaves[0].unsqueeze(0), None, None, leaves[1], leaves[2], training=True, eps=1e-5)
        gradients = torch.autograd.grad(expected, leaves, slope.unsqueeze(0))
        out, means, scales = found.normalise(x, weight, bias, 1e-5)
        torch.testing.assert_close(out, expected[0].detach(), atol=30 * tolerance, rtol=30 * tolerance)
        for one, other in zip(found.normalise_back(x, slope, weight, means, scales), gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1000 * tolerance, rtol=100 * tolerance)
