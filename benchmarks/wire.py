"""Messages of ResNet-18 on the wire: their bytes beside the entropy of what they say, and the time of coding them.

Masks are the largest magnitudes over all layers, of the initial network and of one after a few steps of SGD.
"""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.timing import Figure
from framp import rng
from framp.budgets import Budget
from framp.data.kinds import Images
from framp.layout import ParameterLayout
from framp.messages import LocalTraining, Submodel, Task, Update
from framp.models import NamedArchitecture, initialised
from framp.settings import ModelConfig
from framp.stage2_extraction.threshold import top_indices
from framp.stage3_objective import CrossEntropy
from framp.wire import CODINGS, decode, encode
from framp.wire.body import Writer
from framp.wire.index_set import write_indices

WHOLE = {"1/64": 0.0140, "1/16": 0.057, "1/4": 0.23}
"""The most that a message may take of the dense network, by budget."""
MILLISECONDS = 60.0
STEPS = 12


@dataclass(frozen=True, eq=False)
class Case:
    """A task that goes down, and what its size is measured by."""

    name: str
    budget: str
    task: Task
    layout: ParameterLayout

    @property
    def dense(self) -> int:
        """Bytes of the whole network's maskable parameters."""
        return 4 * self.layout.maskable

    def floor(self) -> float:
        """Return 4·k + d·H(γ)/8: values, and an index set whose entries are all as likely as one another."""
        submodel = self.task.submodel
        return 4 * len(submodel.values) + entropy_bytes(len(submodel.values), submodel.maskable)

    def index_share(self) -> float:
        """Return the index set's bytes beside the entropy of each tensor's own density."""
        indices = self.task.submodel.indices
        assert indices is not None
        lengths = [entry.stop - entry.start for entry in self.layout.entries if entry.stop <= self.layout.maskable]
        counts = np.diff(np.searchsorted(indices.numpy(), np.cumsum([0, *lengths]).astype(np.int32)))
        writer = Writer()
        write_indices(writer, indices, self.layout.maskable, lengths, None)
        return sum(map(len, writer.parts)) / sum(map(entropy_bytes, counts.tolist(), lengths))


def entropy_bytes(held: int, length: int) -> float:
    """Return the entropy of a set of so many of a length's entries, if they were independent."""
    if held in (0, length):
        return 0.0
    share = held / length
    entropy: float = -length * (share * np.log2(share) + (1 - share) * np.log2(1 - share)) / 8
    return entropy


def network(steps: int) -> nn.Module:
    """Return ResNet-18 after some steps on images of noise around a centre for each class."""
    model = initialised(NamedArchitecture(ModelConfig("resnet18", 64, "batch"), Images(3, 32, 32), 10), 0)
    generator = rng.torch_generator(0, rng.NOBODY, rng.NOBODY, "benchmark images")
    centres = torch.randn(10, 3, 32, 32, generator=generator)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        labels = torch.randint(0, 10, (16,), generator=generator)
        images = centres[labels] + torch.randn(16, 3, 32, 32, generator=generator)
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def cases(name: str, model: nn.Module) -> list[Case]:
    """Return a task of each budget."""
    layout = ParameterLayout.of(model)
    vector = layout.flatten(model)
    weights, always = vector[: layout.maskable], vector[layout.maskable :]
    found = []
    for budget in WHOLE:
        indices = top_indices(weights, Budget.parse(budget).limit(layout.maskable))
        submodel = Submodel(layout.maskable, indices, weights[indices], always.clone())
        training = LocalTraining(10, 20, 0.1)
        task = Task(1, 0, 1 << 62, Budget.parse(budget), submodel, CrossEntropy(), training, None, 1 << 62)
        found.append(Case(name, budget, task, layout))
    return found


def processor_milliseconds(work: Callable[[], object], turns: int) -> float:
    """Return the median processor time of some work."""
    found = []
    for _ in range(turns):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return 1e3 * median(found)


def decoding_memory(data: bytes, kind: type[Any], size: int) -> float:
    """Return the most memory that decoding takes, 3 MiB aside, beside the size of its result."""
    tracemalloc.start()
    decode(data, kind, limit=1 << 30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return max(0, peak - (3 << 20)) / size


def changed(values: Tensor) -> Tensor:
    """Return changes as training makes them: of every size around a hundredth of the values."""
    generator = rng.torch_generator(0, rng.NOBODY, rng.NOBODY, "benchmark changes")
    return 1e-3 * torch.randn(len(values), generator=generator)


def figures(turns: int = 9) -> list[Figure]:
    """Measure sizes and times."""
    torch.set_num_threads(1)
    all_cases = cases("initial", network(0)) + cases("trained", network(STEPS))
    sent = {case: encode(case.task, layout=case.layout) for case in all_cases}
    found = [
        _worst("index set / entropy of each tensor's density", 1.10, {case: case.index_share() for case in all_cases}),
        _worst("message / (4·k + d·H(γ)/8)", 1.00, {case: len(sent[case]) / case.floor() for case in all_cases}),
    ]
    found += [
        _worst(
            f"message at {budget} / dense network, per cent",
            100 * bar,
            {case: 100 * len(sent[case]) / case.dense for case in all_cases if case.budget == budget},
        )
        for budget, bar in WHOLE.items()
    ]
    times: dict[str, dict[Case, float]] = {"encoding": {}, "decoding": {}}
    memory = {}
    for case in all_cases:
        submodel, data = case.task.submodel, sent[case]
        times["encoding"][case] = processor_milliseconds(lambda: encode(case.task, layout=case.layout), turns)  # noqa: B023
        times["decoding"][case] = processor_milliseconds(lambda: decode(data, Task, limit=1 << 30), turns)  # noqa: B023
        assert submodel.indices is not None
        memory[case] = decoding_memory(data, Task, 2 * submodel.values.nbytes + submodel.always.nbytes)
    found += [_worst(f"{what} a task, ms of one thread", MILLISECONDS, values) for what, values in times.items()]
    found.append(_worst("memory of decoding, 3 MiB aside / what is decoded", 1.2, memory))
    return [*found, _codings(all_cases[-2:]), _updates(all_cases[-2:], turns)]


def _worst(name: str, bar: float, values: dict[Case, float]) -> Figure:
    detail = ", ".join(f"{case.name} {case.budget}: {value:.4g}" for case, value in values.items())
    return Figure(name, max(values.values()), bar, detail)


def _codings(chosen: list[Case]) -> Figure:
    shares = {
        f"{coding} {case.budget}": len(encode(case.task, coding, case.layout)) / case.dense
        for case in chosen
        for coding in CODINGS
    }
    detail = ", ".join(f"{name}: {share:.4f}" for name, share in shares.items())
    return Figure("message with fp16 values at 1/4 / dense network", shares["fp16 1/4"], 0.148, detail)


def _updates(chosen: list[Case], turns: int) -> Figure:
    shares, times = [], []
    for case in chosen:
        submodel = case.task.submodel
        update = Update(1, 0, 1 << 62, changed(submodel.values), changed(submodel.always), None, 1.0)
        data = encode(update)
        took = processor_milliseconds(lambda: encode(update), turns)  # noqa: B023
        back = processor_milliseconds(lambda: decode(data, Update), turns)  # noqa: B023
        shares.append(len(data) / (update.values.nbytes + update.always.nbytes))
        times.append(f"{case.budget}: {shares[-1]:.3f}, encoded in {took:.1f} ms, decoded in {back:.1f} ms")
    return Figure("update of normal changes / its values", max(shares), 1.0, "; ".join(times))
