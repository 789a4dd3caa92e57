"""Layers that hold active weights alone, in the places of a network's own ones.

Maps keep the shape [sample, channel, row, column] but lie in memory as [channel][row][column][sample]; layers that do
not care about the order in memory, such as ReLU and sums, keep it.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.errors import ModelError
from framp.execution.convolution import Convolution
from framp.execution.native import Kernels


class ActiveLayer(nn.Module):
    """What all have in common: the active entries of a weight, and of a bias."""

    def __init__(self, layer: nn.Conv2d | nn.Linear) -> None:
        super().__init__()
        for name in layer.__constants__:  # a network's own code may read them
            setattr(self, name, getattr(layer, name))
        self.shape = tuple(layer.weight.shape)
        bias: Tensor | None = layer.bias
        self.biased = bias is not None
        self._learns = layer.weight.requires_grad, bias is not None and bias.requires_grad
        self.values = self.bias_values = nn.Parameter(layer.weight.new_empty(0), requires_grad=False)
        self.places = self.bias_places = torch.empty(0, dtype=torch.int32)

    def hold(self, places: Tensor, values: Tensor, gradient: Tensor) -> None:
        """Take the active places of the weight (ascending), and views of their values and gradients."""
        self.places = places
        self.values = _parameter(values, gradient, self._learns[0])

    def hold_bias(self, places: Tensor, values: Tensor, gradient: Tensor) -> None:
        """Take the active places of the bias."""
        self.bias_places = places
        self.bias_values = _parameter(values, gradient, self._learns[1])

    @property
    def weight(self) -> Tensor:
        """Return the whole weight, zero where it is not active."""
        return _scattered(self.values, self.places, self.shape)

    @property
    def bias(self) -> Tensor | None:
        """Return the whole bias, zero where it is not active; None: there is none."""
        return _scattered(self.bias_values, self.bias_places, self.shape[:1]) if self.biased else None


class ActiveLinear(ActiveLayer):
    """A linear layer; it is small beside convolutions, and computed whole."""

    def forward(self, features: Tensor) -> Tensor:
        """Apply the layer."""
        return F.linear(features, self.weight, self.bias)


class ActiveConv2d(ActiveLayer):
    """A convolution by the kernels."""

    stride: tuple[int, int]
    padding: tuple[int, int]

    def __init__(self, layer: nn.Conv2d, kernels: Kernels) -> None:
        super().__init__(layer)
        self._kernels = kernels
        self._convolution: Convolution | None = None

    def hold(self, places: Tensor, values: Tensor, gradient: Tensor) -> None:
        """Take the active places of the weight, and make the kernels' lists of them."""
        super().hold(places, values, gradient)
        stride, padding = self.stride[0], self.padding[0]
        self._convolution = Convolution(self._kernels, self.shape, stride, padding, places)

    def forward(self, maps: Tensor) -> Tensor:
        """Apply the layer."""
        assert self._convolution is not None, "hold() comes first"
        _check(maps, self.shape[1], self.values.dtype)
        if min(maps.shape[2:]) + 2 * self.padding[0] < self.shape[2]:
            raise ModelError(f"maps {list(maps.shape)} are smaller than a kernel {list(self.shape[2:])}; enlarge them")
        samples = maps.shape[0]
        x = maps.permute(1, 2, 3, 0)
        if samples % (lanes := self._kernels.lanes(maps.dtype)):
            x = F.pad(x, (0, -samples % lanes))
        out: Tensor = _Convolve.apply(x.contiguous(), self.values, self._convolution)  # type: ignore[no-untyped-call]
        out = (out if out.shape[3] == samples else out[..., :samples]).permute(3, 0, 1, 2)
        bias = self.bias
        return out if bias is None else out + bias.view(1, -1, 1, 1)


class _Convolve(torch.autograd.Function):
    """A convolution by the kernels, forth and back."""

    @staticmethod
    def forward(context: Any, x: Tensor, values: Tensor, convolution: Convolution) -> Tensor:
        """Convolve x [channel, row, column, sample]."""
        context.save_for_backward(x, values)
        context.convolution = convolution
        return convolution.forward(x, values)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        """Return the gradients of x and of the active values."""
        x, values = context.saved_tensors
        gradient = gradient.contiguous()
        down = context.convolution.down(x.shape, values, gradient) if context.needs_input_grad[0] else None
        return down, context.convolution.weights(x, values, gradient), None


class BatchNorm(nn.BatchNorm2d):
    """Batch norm on batch statistics, in the maps' own order in memory."""

    def __init__(self, layer: nn.BatchNorm2d, kernels: Kernels) -> None:
        super().__init__(layer.num_features, layer.eps, track_running_stats=False)
        self.weight, self.bias, self._kernels = layer.weight, layer.bias, kernels

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise feature maps; on given statistics, or to gather them, as torch does."""
        _check(maps, self.num_features, self.weight.dtype)
        single = self.training and maps[:, 0].numel() == 1  # has no statistics that could be gathered
        if self.running_mean is not None and not single:
            return super().forward(maps)
        x = maps.permute(1, 2, 3, 0).contiguous()
        out: Tensor = _Normalise.apply(x, self.weight, self.bias, self.eps, self._kernels)  # type: ignore[no-untyped-call]
        return out.permute(3, 0, 1, 2)


class _Normalise(torch.autograd.Function):
    """Batch norm of [channel, row, column, sample], forth and back."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, kernels: Kernels) -> Tensor:
        """Normalise each channel."""
        out, means, scales = kernels.normalise(x, weight, bias, epsilon)
        context.save_for_backward(x, weight, means, scales)
        context.kernels = kernels
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Return the gradients of x, weight and bias."""
        x, weight, means, scales = context.saved_tensors
        found = context.kernels.normalise_back(x, gradient.contiguous(), weight, means, scales)
        return *found, None, None


class MaxPool(nn.MaxPool2d):
    """Max pooling that keeps the order in memory: samples as channels, channels as samples, channels last."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        super().__init__(layer.kernel_size, layer.stride, layer.padding, layer.dilation, ceil_mode=layer.ceil_mode)

    def forward(self, maps: Tensor) -> Tensor:
        """Pool maps."""
        turned = maps.ndim == 4
        pooled: Tensor = super().forward(maps.transpose(0, 1) if turned else maps)
        return pooled.transpose(0, 1) if turned else pooled


def _check(maps: Tensor, channels: int, dtype: torch.dtype) -> None:
    """Refuse what torch would refuse: the kernels believe the sizes that they are told."""
    if maps.ndim != 4 or maps.shape[1] != channels or maps.dtype != dtype:
        raise ModelError(
            f"maps {list(maps.shape)} of {maps.dtype} reach a layer of {channels} channels in {dtype}; "
            "see to it that the network's layers and its data fit together"
        )


def _parameter(values: Tensor, gradient: Tensor, learns: bool) -> nn.Parameter:
    parameter = nn.Parameter(values, requires_grad=learns)
    parameter.data = values  # the very memory
    parameter.grad = gradient
    return parameter


def _scattered(values: Tensor, places: Tensor, shape: tuple[int, ...]) -> Tensor:
    size = torch.Size(shape).numel()
    if len(places) == size:
        return values.view(shape)
    return values.new_zeros(size).index_copy(0, places.long(), values).view(shape)
