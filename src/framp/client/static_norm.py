"""Batch norms on the statistics of training data (HeteroFL's static batch norm), for the time of an exam."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from framp.data.samples import Samples


@contextmanager
def static_norms(model: nn.Module, samples: Samples, batch: int) -> Iterator[None]:
    """Gather each batch norm's mean and variance in one pass over samples, as the mean over batches; then use them."""
    norms = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    hooks = [layer.register_forward_pre_hook(_begin) for layer in norms]
    try:
        model.eval()  # layers that drop features at random would make every exam another one
        for layer in norms:
            layer.train()
        with torch.no_grad():
            for inputs, _ in samples.in_order(batch, next(model.parameters()).dtype) if norms else ():
                model.features(inputs)  # type: ignore[operator]
        model.eval()
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in norms:
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
            layer.track_running_stats = False


def _begin(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Let a batch norm gather statistics, of as many channels as it gets."""
    assert isinstance(layer, nn.modules.batchnorm._BatchNorm)
    if layer.running_mean is None:
        channels, dtype = inputs[0].shape[1], inputs[0].dtype
        layer.running_mean = torch.zeros(channels, dtype=dtype)
        layer.running_var = torch.ones(channels, dtype=dtype)
        layer.num_batches_tracked = torch.zeros((), dtype=torch.int64)
        layer.track_running_stats, layer.momentum = True, None
