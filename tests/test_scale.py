"""The paper's own size: ResNet-18, 100 clients, four budgets, on real CIFAR-10."""

import os
import time
from pathlib import Path

import pytest

from framp import presets
from framp.federation import Federation
from framp.messages import Exam, Manner, Score
from framp.runs.results import peak_rss_bytes


@pytest.mark.slow
def test_rounds_of_the_cifar10_preset() -> None:
    folder = os.environ.get("FRAMP_TEST_DATA")
    if not folder:
        pytest.skip("FRAMP_TEST_DATA names no folder with cifar10/")
    config = presets.load("cifar10").with_values(
        {"data.path": str(Path(folder) / "cifar10"), "training.steps": 10, "engine.name": "processes"}
    )
    with Federation.from_config(config) as federation:
        assert federation.server.layout.maskable == 11_164_362
        before = federation.server.digest()
        for _ in range(2):
            started = time.perf_counter()
            report = federation.play_round()
            print(f"round {report.round}: {time.perf_counter() - started:.1f} s, server {report.server_seconds:.1f} s")
            assert report.accepted == 10
            assert not report.rejected
            assert report.loss is not None
            assert 0 < report.loss < 10
        assert federation.server.digest() != before
        exams = [Exam(federation.server.personal(client, 2), client, (), Manner(100)) for client in (0, 25, 50, 75)]
        scores = list(federation.engine.exchange(exams))
        assert all(isinstance(score, Score) and score.total == 100 for score in scores)
    for whose, children in (("server", False), ("server and the larger worker", True)):
        print(f"peak RSS of {whose}: {peak_rss_bytes(children) / 2**30:.2f} GiB")
