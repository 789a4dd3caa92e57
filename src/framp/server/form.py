"""Whether an update is made of what updates are made of; only then can it be looked at more closely."""

import torch
from torch import Tensor

from framp.messages import Prototypes, Update


def well_formed(update: Update) -> bool:
    """Tell whether all fields of an update have their types, and its tensors plain memory on the processor."""
    prototypes: object = update.prototypes
    return (
        all(type(number) is int for number in (update.round, update.client, update.token))
        and isinstance(update.loss, float)
        and _plain(update.values, update.always)
        and _plain(*(tensor for tensor in (update.classes, update.extractor) if tensor is not None))
        and (
            prototypes is None or (isinstance(prototypes, Prototypes) and _plain(prototypes.vectors, prototypes.counts))
        )
    )


def _plain(*tensors: object) -> bool:
    return all(
        isinstance(tensor, Tensor)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        for tensor in tensors
    )
