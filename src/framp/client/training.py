"""Local training: T steps of SGD on the submodel, then the difference and the local prototypes (Algorithm 1, client).

The mask stays as it was received; entries outside it are exact zeros before, while and after.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from framp import rng
from framp.client.workspace import Workspace
from framp.data import Shard, augment
from framp.messages import Prototypes, Task, Update
from framp.stage3_objective.prototypes import class_sums


def train(task: Task, shard: Shard, workspace: Workspace) -> Update:
    """Train the task's submodel on a client's samples."""
    model, shown, gradient = workspace.model, workspace.weights, workspace.gradient
    workspace.load(task.submodel)
    mask = task.submodel.mask()
    reparametrisation = task.objective.reparametrise(task.submodel)
    weights = shown if reparametrisation is None else shown.clone()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(task.seed, task.round, task.client, "layers that sample"))
        model.train()
        losses = []
        for images, labels in batches(task, shard, shown.dtype):
            if reparametrisation is not None:
                reparametrisation.shown(weights, out=shown)
            gradient.zero_()
            loss = task.objective.loss(model, images, labels, task.prototypes)
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                if reparametrisation is not None:
                    reparametrisation.gradient(weights, gradient)
                _descend(weights, gradient, mask, task.training.rate)
            losses.append(loss.detach())

    if reparametrisation is not None:
        reparametrisation.shown(weights, out=shown)
    prototypes = local_prototypes(model, shard, workspace.classes) if task.objective.uses_prototypes else None
    submodel = task.submodel
    trained = weights[: submodel.maskable]
    return Update(
        round=task.round,
        client=task.client,
        token=task.token,
        values=(trained if submodel.indices is None else trained[submodel.indices]) - submodel.values,
        always=weights[submodel.maskable :] - submodel.always,
        prototypes=prototypes,
        loss=float(torch.stack(losses).mean()),
    )


def _descend(weights: Tensor, gradient: Tensor, mask: Tensor | None, rate: float) -> None:
    """ω ← ω − α·(M ⊙ g), in place."""
    if mask is None:
        weights.add_(gradient, alpha=-rate)
    else:
        weights.addcmul_(gradient, mask, value=-rate)


def batches(task: Task, shard: Shard, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield T mini-batches: the samples in a random order, anew after each pass; the last of a pass may be short."""
    order = rng.stream(task.seed, task.round, task.client, "batches")
    noise = rng.stream(task.seed, task.round, task.client, "augmentation")
    remaining = np.empty(0, dtype=np.int64)
    for _ in range(task.training.steps):
        if not len(remaining):
            remaining = order.permutation(len(shard))
        rows, remaining = remaining[: task.training.batch], remaining[task.training.batch :]
        images, labels = shard.batch(torch.from_numpy(rows), dtype)
        yield (augment(images, noise) if task.training.augment else images), labels


@torch.no_grad()
def local_prototypes(model: nn.Module, shard: Shard, classes: int, batch: int = 256) -> Prototypes:
    """Return P_n^c over the client's own training samples, without augmentation."""
    model.eval()
    total: Tensor | None = None
    counts = torch.zeros(classes, dtype=torch.int64)
    for start in range(0, len(shard), batch):
        images, labels = shard.batch(slice(start, start + batch), next(model.parameters()).dtype)
        sums, present = class_sums(model.features(images), labels, classes)  # type: ignore[operator]
        total = sums if total is None else total + sums
        counts += present
    if total is None:
        raise ValueError("a client without samples has no prototypes")
    return Prototypes(total / counts.clamp(min=1).unsqueeze(1), counts)
