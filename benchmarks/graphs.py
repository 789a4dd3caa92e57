"""A round of the arxiv preset on a generated graph of its size, beside the same steps in PyTorch Geometric alone."""

import json
import re
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.timing import Figure, interleaved
from framp import presets
from framp.config import Config
from framp.data.clients import ClientData
from framp.federation import Federation

SIZE = {
    "data.source": "sbm",
    "sbm.nodes": 169_343,
    "sbm.edges": 1_166_243,
    "sbm.features": 128,
    "sbm.classes": 40,
    "sbm.blocks": 400,
}


def config(**values: Any) -> Config:
    """Return the arxiv preset's settings on a generated graph of its size."""
    return presets.load("arxiv").with_values({**SIZE, **values})


class Bare(nn.Module):
    """The same network out of PyTorch Geometric's layers."""

    def __init__(self, cached: bool) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        widths = (128, 128, 128, 128, 40)
        self.layers = nn.ModuleList(
            GCNConv(before, after, cached=cached, normalize=cached) for before, after in pairwise(widths)
        )

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return the logits of all nodes."""
        for layer in self.layers[:-1]:
            x = layer(x, edges).relu()
        logits: Tensor = self.layers[-1](x, edges)
        return logits


def bare_round(data: ClientData, settings: Config, sparse: bool) -> None:
    """Train the full network of as many clients for as many steps, over edges or over a sparse adjacency."""
    for client in range(settings.federation.participants):
        ((graph, labels),) = data.training(client).in_order(1)
        model = Bare(cached=not sparse)
        edges = graph.adjacency if sparse else graph.edge_index
        optimiser = torch.optim.SGD(model.parameters(), lr=settings.training.rate)
        for _ in range(settings.training.steps):
            optimiser.zero_grad()
            logits = model(graph.x, edges)
            F.cross_entropy(logits[graph.rows], labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def whole_run() -> dict[str, float]:
    """Play two rounds and evaluate everybody after each; return the process's peak memory."""
    with Federation.from_config(config()) as federation:
        for _ in range(2):
            list(federation.train(1))
            federation.evaluate()
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return {"peak": int(found[1]) * 1024}


def figures(turns: int = 3) -> list[Figure]:
    """Measure a serial round against both, and the memory of a whole run in a process of its own."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.set_num_threads(1)
    program = "import json; from benchmarks.graphs import *; print(json.dumps(whole_run()))"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    peak = json.loads(done.stdout.splitlines()[-1])["peak"]
    settings = config()
    with Federation.from_config(settings) as federation:
        data = federation.data
        seconds = interleaved(
            {
                "edges": lambda: bare_round(data, settings, sparse=False),
                "sparse": lambda: bare_round(data, settings, sparse=True),
                "serial": federation.play_round,
            },
            turns,
        )
    fastest = min(seconds["edges"], seconds["sparse"])
    detail = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    return [
        Figure("round of arxiv's size / bare PyTorch Geometric steps", seconds["serial"] / fastest, 1.15, detail),
        Figure("peak RSS of a run of arxiv's size, GB", peak / 1e9, 3.0, "arxiv preset, serial, two rounds"),
    ]
