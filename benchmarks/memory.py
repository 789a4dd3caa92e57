"""The server's memory, each measured as the peak RSS of a process of its own."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType

import torch

from benchmarks.server_step import framp_step, server
from benchmarks.timing import Figure
from framp.stage1_generation import Generated


def rss(kind: str) -> int:
    """Return this process's resident bytes, now (VmRSS) or at the peak (VmHWM)."""
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise RuntimeError("this system does not report resident memory in /proc/self/status")
    return int(found[1]) * 1024


def resnet_step() -> dict[str, float]:
    """Play the server's part of two rounds of ResNet-18; return its memory beyond the hypernetwork's parameters."""
    small = server("framp", "cnn")  # libraries, threads and allocators are warm before counting starts
    framp_step(small)
    before = rss("VmRSS")
    framp = server()
    for _ in range(2):
        framp_step(framp)
    backbone = framp.method.backbone
    assert isinstance(backbone, Generated)
    network = sum(tensor.nbytes for tensor in backbone.network.state().values())  # the running average is beyond it
    return {"beyond": rss("VmHWM") - before - network, "network": network, "vector": 4 * framp.layout.size}


def large_step() -> dict[str, float]:
    """Play the server's part of two rounds of a network of 100 M parameters; return the process's peak memory."""
    framp = server(model__width=192, generation__head="blocks")
    started = time.perf_counter()
    for _ in range(2):
        framp_step(framp)
    backbone = framp.method.backbone
    assert isinstance(backbone, Generated)
    network = sum(tensor.nbytes for tensor in backbone.network.state().values())
    seconds = (time.perf_counter() - started) / 2
    return {"peak": rss("VmHWM"), "network": network, "entries": framp.layout.size, "seconds": seconds}


def registered(clients: int) -> dict[str, float]:
    """Play rounds with some number of registered clients; return a round's time and the memory beside the registry."""
    framp = server("framp", "cnn", clients)
    known = framp.registry
    own = known.descriptors.nbytes + known.group.nbytes + known.samples.nbytes
    steady = rss("VmRSS")
    seconds = []
    for _ in range(30):
        started = time.perf_counter()
        framp_step(framp)
        seconds.append(time.perf_counter() - started)
    return {"seconds": median(seconds), "rss": rss("VmRSS") - own, "grown": rss("VmRSS") - steady, "registry": own}


def in_a_process(
    expression: str, environment: Mapping[str, str] = MappingProxyType({}), module: str = __name__
) -> dict[str, float]:
    """Evaluate one of a module's functions in a fresh interpreter, with some more in its environment."""
    code = f"import json, torch; torch.set_num_threads(1); from {module} import *; print(json.dumps({expression}))"
    known = os.environ | environment
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=known)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def figures(turns: int = 3) -> list[Figure]:
    """Measure the full-size vectors beside the hypernetwork, and what a million registered clients cost."""
    torch.set_num_threads(1)
    step = in_a_process("resnet_step()")
    large = in_a_process("large_step()")
    runs = [(in_a_process("registered(100)"), in_a_process("registered(1_000_000)")) for _ in range(turns)]
    time_ratio = median(many["seconds"] / few["seconds"] for few, many in runs)
    rss_ratio = median(many["rss"] / few["rss"] for few, many in runs)
    few, many = runs[-1]
    return [
        Figure(
            "server memory beyond the hypernetwork, in full-size vectors",
            step["beyond"] / step["vector"],
            3.0,
            f"{step['beyond'] / 2**20:.0f} MiB beside {step['network'] / 2**20:.0f} MiB of parameters",
        ),
        Figure(
            f"peak RSS of a server of {large['entries'] / 1e6:.1f} M parameters, block-wise head, GB",
            large["peak"] / 1e9,
            6.0,
            f"{large['network'] / 1e9:.2f} GB of parameters of the hypernetwork, {large['seconds']:.0f} s a round",
        ),
        Figure(
            "server time of a round, 1,000,000 / 100 registered clients",
            time_ratio,
            1.1,
            f"{1e3 * few['seconds']:.1f} ms, {1e3 * many['seconds']:.1f} ms",
        ),
        Figure(
            "server RSS beyond the registry, 1,000,000 / 100 registered clients",
            rss_ratio,
            1.1,
            f"{few['rss'] / 2**20:.0f} MiB, {many['rss'] / 2**20:.0f} MiB; registry {many['registry'] / 1e6:.0f} MB",
        ),
    ]
