"""Local training: T steps of SGD on the submodel, then the difference and the local prototypes (Algorithm 1, client).

The mask stays as it was received; entries outside it are exact zeros before, while and after.
"""

from collections.abc import Iterator
from itertools import count, islice

import torch
from torch import Tensor, nn

from framp import rng
from framp.client.workspace import Workspace
from framp.data.samples import Batch, Samples
from framp.data.shard import augment
from framp.messages import LocalTraining, Prototypes, Task, Update
from framp.stage3_objective import Known
from framp.stage3_objective.prototypes import class_sums


def train(task: Task, samples: Samples, workspace: Workspace) -> Update:
    """Train the task's submodel on a client's samples."""
    submodel = workspace.load(task.submodel)
    model, shown, gradient = workspace.model, workspace.weights, workspace.gradient
    known = Known(task.prototypes, own_classes(samples, workspace.classes))
    step = Descent(task.training, submodel.mask())
    reparametrisation = task.objective.reparametrise(submodel)
    weights = shown if reparametrisation is None else shown.clone()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(task.seed, task.round, task.client, "layers that sample"))
        model.train()
        losses = []
        for inputs, labels in batches(task, samples, shown.dtype):
            if reparametrisation is not None:
                reparametrisation.shown(weights, out=shown)
            gradient.zero_()
            loss = task.objective.loss(model, inputs, labels, known)
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                if reparametrisation is not None:
                    reparametrisation.gradient(weights, gradient)
                step(weights, gradient)
            losses.append(loss.detach())

    if reparametrisation is not None:
        reparametrisation.shown(weights, out=shown)
    prototypes = local_prototypes(model, samples, workspace.classes) if task.objective.uses_prototypes else None
    values, always = submodel.trained(weights)
    return Update(
        round=task.round,
        client=task.client,
        token=task.token,
        values=values - submodel.values,
        always=always - submodel.always,
        prototypes=prototypes,
        loss=float(torch.stack(losses).mean()),
        classes=known.classes if task.objective.tells_classes else None,
    )


class Descent:
    """ω ← ω − α·(M ⊙ g), in place; weight decay, clipping and momentum where the configuration has them."""

    def __init__(self, training: LocalTraining, mask: Tensor | None) -> None:
        self._training, self._mask = training, mask
        self._momentum: Tensor | None = None

    def __call__(self, weights: Tensor, gradient: Tensor) -> None:
        """Take one step; the gradient is used up."""
        training = self._training
        if training.clip > 0:
            held = gradient if self._mask is None else gradient * self._mask
            gradient.mul_(torch.clamp(training.clip / (held.norm() + 1e-6), max=1.0))
        if training.weight_decay > 0:
            gradient.add_(weights, alpha=training.weight_decay)
        if training.momentum > 0:
            if self._momentum is None:
                self._momentum = gradient.clone()
            else:
                self._momentum.mul_(training.momentum).add_(gradient)
            gradient = self._momentum
        if self._mask is None:
            weights.add_(gradient, alpha=-training.rate)
        else:
            weights.addcmul_(gradient, self._mask, value=-training.rate)


def own_classes(samples: Samples, classes: int) -> Tensor:
    """Return which classes a client's samples have."""
    found = torch.zeros(classes, dtype=torch.bool)
    found[samples.labels] = True
    return found


def batches(task: Task, samples: Samples, dtype: torch.dtype) -> Iterator[Batch]:
    """Yield T mini-batches: the samples in a random order, anew after each pass; the last of a pass may be short."""
    order = rng.stream(task.seed, task.round, task.client, "batches")
    noise = rng.stream(task.seed, task.round, task.client, "augmentation")
    drawn = (batch for _ in count() for batch in samples.shuffled(task.training.batch, order, dtype))
    for inputs, labels in islice(drawn, task.training.steps):
        yield (augment(inputs, noise) if task.training.augment else inputs), labels


@torch.no_grad()
def local_prototypes(model: nn.Module, samples: Samples, classes: int, batch: int = 256) -> Prototypes:
    """Return P_n^c over the client's own training samples, without augmentation."""
    model.eval()
    total: Tensor | None = None
    counts = torch.zeros(classes, dtype=torch.int64)
    for inputs, labels in samples.in_order(batch, next(model.parameters()).dtype):
        sums, present = class_sums(model.features(inputs), labels, classes)  # type: ignore[operator]
        total = sums if total is None else total + sums
        counts += present
    if total is None:
        raise ValueError("a client without samples has no prototypes")
    return Prototypes(total / counts.clamp(min=1).unsqueeze(1), counts)
