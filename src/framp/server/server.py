"""The server: what it knows, what it asks of clients, how it learns from their answers. `round.py` puts it in order."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from framp import rng
from framp.budgets import Budget
from framp.errors import BudgetError
from framp.layout import ParameterLayout
from framp.messages import Describe, Description, LocalTraining, Submodel, Task
from framp.server.inbox import Inbox
from framp.server.prototypes import GlobalPrototypes
from framp.server.registry import Registry
from framp.stage1_generation import Backbone, Descriptors
from framp.stage2_extraction import Extractor, Selection
from framp.stage3_objective import Objective
from framp.work import Work


@dataclass(frozen=True)
class Method:
    """A recipe's three parts, ready to work."""

    backbone: Backbone
    extractor: Extractor
    objective: Objective
    descriptors: Descriptors | None = None


class Server:
    """Holds the method and its state; everything that it learns is in named tensors.

    `work` is what the network's entries cost, None where that cannot be counted.
    """

    def __init__(
        self,
        method: Method,
        layout: ParameterLayout,
        registry: Registry,
        training: LocalTraining,
        prototypes: GlobalPrototypes,
        participants: int,
        seed: int,
        inbox_memory: int,
        work: Work | None = None,
    ) -> None:
        self.method, self.layout, self.registry = method, layout, registry
        self.training, self.prototypes = training, prototypes
        self.participants, self.seed, self._inbox_memory = participants, seed, inbox_memory
        self.work = work
        for budget in registry.budgets:
            self.require(budget)

    def require(self, budget: Budget) -> Budget:
        """Return what the method grants for a budget, or raise if a submodel of it would be empty."""
        granted = self.method.extractor.granted(budget)
        if granted.limit(self.layout.maskable) < 1:
            raise BudgetError(
                f"budget {budget.name} of a model with {self.layout.maskable} parameters holds none of them; "
                "raise the budget or model.width (gcn: model.hidden)"
            )
        return granted

    def sample(self, round: int) -> list[int]:
        """Draw the round's participants; the longest tasks come first."""
        drawn = self.registry.sample(self.participants, self.seed, round)
        return sorted(drawn, key=lambda client: (-self.registry.budget(client).fraction, client))

    def inbox(self) -> Inbox:
        """Return an empty inbox for a round."""
        return Inbox(self._inbox_memory)

    def questions(self, round: int) -> list[Describe]:
        """Return what clients are asked before a round: new descriptions, where the method wants them now."""
        extractor = None if self.method.descriptors is None else self.method.descriptors.extractor(round)
        if extractor is None:
            return []
        return [Describe(client, 0, extractor=extractor) for client in range(len(self.registry))]

    def redescribe(self, descriptions: Iterable[Description]) -> None:
        """Take clients' new descriptions in; one that is not valid leaves the client's old one."""
        descriptors = self.method.descriptors
        assert descriptors is not None
        for description in descriptions:
            client, vector = description.client, description.vector
            known = 0 <= client < len(self.registry) and vector.shape == (descriptors.dimensions,)
            if known and bool(vector.isfinite().all()):
                descriptors.refresh(client, vector)
        descriptors.refreshed()

    def task(self, client: int, round: int, inbox: Inbox) -> Task:
        """Make a client's task: generate its full model, extract what fits its budget; the inbox expects the answer."""
        uses_prototypes = self.method.objective.uses_prototypes
        budget, descriptors = self.method.extractor.granted(self.registry.budget(client)), self.method.descriptors
        submodel, selection = self._cut(self.method.backbone.generate(client), budget, round)
        task = Task(
            round=round,
            client=client,
            token=secrets.randbits(63),
            budget=budget,
            submodel=submodel,
            objective=self.method.objective.in_round(round),
            training=self.training,
            prototypes=self.prototypes.snapshot() if uses_prototypes else None,
            seed=rng.number(self.seed, round, client, "task"),
            extractor=None if descriptors is None else descriptors.training(),
        )
        above = self.layout.size - self.layout.maskable
        inbox.expect(task, selection, above, self.prototypes.vectors.shape, int(self.registry.samples[client]))
        return task

    def merge(self, inbox: Inbox) -> dict[str, float]:
        """Learn from a round's valid updates, in the order of client ids; without any, nothing changes."""
        accepted = inbox.accepted
        if not accepted:
            return {}
        self.prototypes.merge(inbox.prototypes)
        if self.method.descriptors is not None and inbox.extractors:
            self.method.descriptors.learn(inbox.extractors)
        self.method.extractor.learn(accepted, self.method.backbone.generate)
        return self.method.backbone.learn(accepted)

    def personal(self, client: int, round: int, budget: Budget | None = None) -> Submodel:
        """Return a client's own submodel as it is after a round, of its own budget or of another."""
        granted = self.require(budget or self.registry.budget(client))
        return self._cut(self.method.backbone.serve(client), granted, round, in_use=True)[0]

    def held(self, budget: Budget) -> float:
        """Return the fraction of the maskable parameters that a client of some budget really gets."""
        return self.union(budget, 0).values.numel() / self.layout.maskable

    def union(self, budget: Budget, round: int) -> Submodel:
        """Return the average client's submodel of some budget after a round, also of a budget never trained."""
        return self._cut(self.method.backbone.generate_union(), self.require(budget), round, in_use=True)[0]

    def _cut(self, vector: Tensor, granted: Budget, round: int, in_use: bool = False) -> tuple[Submodel, Selection]:
        """Cut the submodel that a budget allows out of a full vector."""
        weights, above = vector[: self.layout.maskable], vector[self.layout.maskable :]
        chosen = self.method.extractor.select(weights, granted, round, in_use)
        values = weights if chosen.indices is None else weights.index_select(0, chosen.indices)
        always = above.clone() if chosen.always is None else above[chosen.always]
        return Submodel(self.layout.maskable, chosen.indices, values, always, chosen.shapes), chosen

    def state(self) -> dict[str, Tensor]:
        """Return all that training has changed, as named tensors."""
        parts = (self.method.backbone, self.method.extractor, self.prototypes, self.method.descriptors)
        return {name: tensor for part in parts if part is not None for name, tensor in part.state().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over a saved state; one of other tensors is an error."""
        if _shapes(state) != _shapes(self.state()):
            raise ValueError("the state is that of another recipe or another network")
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def digest(self) -> str:
        """Return a hash of the state: equal hashes, equal bits."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()


def _shapes(state: dict[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
