"""What a device's training is predicted to take in memory, beside what it takes in a process of its own."""

from pathlib import Path
from statistics import median

import torch

from benchmarks.memory import in_a_process, rss
from benchmarks.timing import Figure
from framp import rng
from framp.budgets import FULL, Budget
from framp.client.training import local_prototypes, train
from framp.client.workspace import Workspace
from framp.config import Config
from framp.cost import Dense, Device, cost
from framp.data.kinds import Images
from framp.data.shard import Shard
from framp.engines.allocator import give_back_freed_memory
from framp.layout import ParameterLayout
from framp.messages import LocalTraining, Submodel, Task
from framp.models import NamedArchitecture, initialised
from framp.settings import ModelConfig
from framp.stage2_extraction import GlobalTopK, WidthPrefix
from framp.stage2_extraction.network import Network
from framp.stage3_objective import CrossEntropy


def images(kind: Images, count: int) -> Shard:
    """Return random images."""
    generator = rng.torch_generator(0, 0, 0, "benchmark images")
    shape = (count, kind.channels, kind.height, kind.width)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return Shard(pixels, labels, torch.full((3, 1, 1), 0.5), torch.full((3, 1, 1), 0.25))


def asked(
    model: str, width: int, side: int, batch: int, budget: str, slices: bool, widest: int = 0
) -> tuple[Task, Device]:
    """Return a task of three steps and what is known of the device: a mask of the largest, or the first channels."""
    kind = Images(3, side, side)
    architecture = NamedArchitecture(ModelConfig(model, width, "batch"), kind, 10)
    module = initialised(architecture, 0)
    layout = ParameterLayout.of(module)
    extractor = (WidthPrefix if slices else GlobalTopK).configured(Config(), Network(architecture, layout, kind))
    vector = layout.flatten(module)
    weights, above = vector[: layout.maskable], vector[layout.maskable :]
    chosen = extractor.select(weights, Budget.parse(budget), 1)
    values = weights.clone() if chosen.indices is None else weights[chosen.indices]
    always = above.clone() if chosen.always is None else above[chosen.always]
    submodel = Submodel(layout.maskable, chosen.indices, values, always, chosen.shapes)
    training = LocalTraining(3, batch, 0.01)
    task = Task(1, 0, 1, FULL, submodel, CrossEntropy(), training, None, 0)
    return task, Device(architecture, kind, training, widest=widest)


def predicted(gaps: bool, *case: object) -> dict[str, float]:
    """Return the predicted peak and its terms."""
    task, device = asked(*case)  # type: ignore[arg-type]
    found = cost(task.submodel, device, Dense() if gaps else Dense(gaps=0.0))
    return {"peak": found.peak_bytes, **found.terms}


def measured(*case: object) -> dict[str, float]:
    """Train in this process, and return by how much its resident memory grew at most."""
    task, device = asked("cnn", 4, 8, 4, "1/4", False)
    train(task, images(Images(3, 8, 8), 16), Workspace(device.architecture, 10))  # libraries are warm
    task, device = asked(*case)  # type: ignore[arg-type]
    assert isinstance(device.kind, Images)
    shard = images(device.kind, max(3 * device.training.batch, device.widest))
    own = task.submodel.values.nbytes + task.submodel.always.nbytes
    own += 0 if task.submodel.indices is None else task.submodel.indices.nbytes
    give_back_freed_memory()
    before = rss("VmRSS") - own  # the task came over the network
    workspace = Workspace(device.architecture, 10)
    workspace.load(task.submodel)
    give_back_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: building the full network is not training
    train(task, shard, workspace)
    if device.widest:
        local_prototypes(workspace.model, shard, 10, device.widest)
    return {"peak": rss("VmHWM") - before}


CASES = (
    ("cnn", 24, 16, 32, "1/16", False),
    ("cnn", 64, 32, 32, "1/4", False),
    ("resnet18", 16, 32, 32, "1/16", False),
    ("resnet18", 64, 32, 32, "1/64", False),
    ("resnet18", 64, 32, 32, "1/16", True),
    ("resnet18", 16, 32, 32, "1/16", False, 256),
)
HANDED_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""With this in its environment glibc gives blocks back when they are freed, and leaves no gaps."""


def figures(turns: int = 3) -> list[Figure]:
    """Compare for the usual allocator, and for one that leaves no gaps; of several processes the median counts."""
    found = []
    for gaps, environment in ((True, {}), (False, HANDED_BACK)):
        away, detail = [], []
        for case in CASES:
            expected = in_a_process(f"predicted({gaps}, *{case!r})", environment, __name__)["peak"]
            peaks = [in_a_process(f"measured(*{case!r})", environment, __name__)["peak"] for _ in range(turns)]
            away.append(abs(expected / median(peaks) - 1))
            model, width, _, _, budget, slices, *widest = case
            detail.append(
                f"{model} of {width} at {budget}{' (slice)' if slices else ''}{' and prototypes' if widest else ''}: "
                f"{expected / 2**20:.1f} of {median(peaks) / 2**20:.1f} MiB"
            )
        kind = "the usual allocator" if gaps else "no gaps between blocks"
        found.append(Figure(f"predicted peak memory of training, {kind}, away by", max(away), 0.15, "; ".join(detail)))
    return found
