"""The server: what it knows, what it asks of clients, how it learns from their answers. `round.py` puts it in order."""

import hashlib
import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

from framp import rng
from framp.budgets import Budget
from framp.errors import BudgetError
from framp.layout import ParameterLayout
from framp.messages import LocalTraining, Submodel, Task
from framp.server.inbox import Inbox
from framp.server.prototypes import GlobalPrototypes
from framp.server.registry import Registry
from framp.stage1_generation import Backbone
from framp.stage2_extraction import Extractor
from framp.stage3_objective import Objective


@dataclass(frozen=True)
class Method:
    """A recipe's three parts, ready to work."""

    backbone: Backbone
    extractor: Extractor
    objective: Objective


class Server:
    """Holds the method and its state; everything that it learns is in named tensors."""

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
    ) -> None:
        self.method, self.layout, self.registry = method, layout, registry
        self.training, self.prototypes = training, prototypes
        self.participants, self.seed, self._inbox_memory = participants, seed, inbox_memory
        for budget in registry.budgets:
            self.require(budget)

    def require(self, budget: Budget) -> Budget:
        """Return what the method grants for a budget, or raise if a submodel of it would be empty."""
        granted = self.method.extractor.granted(budget)
        if granted.limit(self.layout.maskable) < 1:
            raise BudgetError(
                f"budget {budget.name} of a model with {self.layout.maskable} parameters holds none of them; "
                "raise the budget or model.width"
            )
        return granted

    def sample(self, round: int) -> list[int]:
        """Draw the round's participants; the longest tasks come first."""
        drawn = self.registry.sample(self.participants, self.seed, round)
        return sorted(drawn, key=lambda client: (-self.registry.budget(client).fraction, client))

    def inbox(self) -> Inbox:
        """Return an empty inbox for a round."""
        return Inbox(self._inbox_memory)

    def task(self, client: int, round: int, inbox: Inbox) -> Task:
        """Make a client's task: generate its full model, extract what fits its budget; the inbox expects the answer."""
        uses_prototypes = self.method.objective.uses_prototypes
        budget = self.method.extractor.granted(self.registry.budget(client))
        task = Task(
            round=round,
            client=client,
            token=secrets.randbits(63),
            budget=budget,
            submodel=self.extract(self.method.backbone.generate(client), budget),
            objective=self.method.objective,
            training=self.training,
            prototypes=self.prototypes.snapshot() if uses_prototypes else None,
            seed=rng.number(self.seed, round, client, "task"),
        )
        inbox.expect(
            task, self.prototypes.vectors.shape if uses_prototypes else None, int(self.registry.samples[client])
        )
        return task

    def merge(self, inbox: Inbox) -> dict[str, float]:
        """Learn from a round's valid updates, in the order of client ids; without any, nothing changes."""
        accepted = inbox.accepted
        if not accepted:
            return {}
        self.prototypes.merge(inbox.prototypes)
        return self.method.backbone.learn(accepted)

    def personal(self, client: int, budget: Budget | None = None) -> Submodel:
        """Return a client's own submodel as it is now, of its own budget or of another."""
        return self.extract(self.method.backbone.serve(client), budget or self.registry.budget(client))

    def union(self, budget: Budget) -> Submodel:
        """Return the average client's submodel of some budget, also one never trained."""
        return self.extract(self.method.backbone.generate_union(), budget)

    def extract(self, vector: Tensor, budget: Budget) -> Submodel:
        """Cut the submodel that a budget allows out of a full vector."""
        maskable = self.layout.maskable
        weights = vector[:maskable]
        indices = self.method.extractor.select(weights, self.require(budget))
        values = weights if indices is None else weights.index_select(0, indices)
        return Submodel(maskable, indices, values, vector[maskable:].clone())

    def state(self) -> dict[str, Tensor]:
        """Return all that training has changed, as named tensors."""
        return {**self.method.backbone.state(), **self.prototypes.state()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over a saved state; one of other tensors is an error."""
        if _shapes(state) != _shapes(self.state()):
            raise ValueError("the state is that of another recipe or another network")
        self.method.backbone.load(state)
        self.prototypes.load(state)

    def digest(self) -> str:
        """Return a hash of the state: equal hashes, equal bits."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()


def _shapes(state: dict[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
