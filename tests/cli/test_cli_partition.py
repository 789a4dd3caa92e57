import csv
import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framp import presets
from framp.data import label_counts, load, partition, prior_overlap

TINY = str(Path(__file__).with_name("tiny.toml"))

SETTINGS = ["--set", "partition.clients=100", "--set", "partition.test=independent"]


@pytest.fixture(scope="module")
def dealt(tmp_path_factory: pytest.TempPathFactory, framp: Any) -> Path:
    folder = tmp_path_factory.mktemp("partition") / "result"
    result = framp("partition", "digits", *SETTINGS, "--out", folder)
    assert result.code == 0
    assert "overlap of train and test priors" in result.out
    return folder


def test_the_table_holds_every_label(dealt: Path) -> None:
    config = presets.load("digits").with_values({"partition.clients": 100, "partition.test": "independent"})
    data = load(config.data)
    shards = partition(data.train.labels, data.test.labels, data.classes, config.partition)
    with (dealt / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    parts = [("train", data.train.labels, shards.train), ("test", data.test.labels, shards.test)]
    found = {}
    for part, labels, indices in parts:
        mine = [row for row in rows if row["part"] == part]
        found[part] = np.array([[int(row[f"class_{number}"]) for number in range(10)] for row in mine])
        assert (found[part] == label_counts(labels, indices, 10)).all()
        assert [int(row["samples"]) for row in mine] == [len(shard) for shard in indices]
    overlaps = [float(row["overlap"]) for row in rows if row["part"] == "train"]
    assert np.allclose(overlaps, prior_overlap(found["train"], found["test"]), atol=1e-6)


def test_json_summarises_and_the_hash_is_that_of_a_run(dealt: Path, tmp_path: Path, framp: Any) -> None:
    value = framp("partition", "digits", *SETTINGS, "--out", dealt, "--json").json
    assert value["sha256"] == json.loads((dealt / "partition.json").read_text())["sha256"]
    assert value["clients"] == 100
    assert value["train"]["total"] == 1400
    assert 0 <= value["overlap"]["min"] <= value["overlap"]["mean"] <= value["overlap"]["max"] <= 1
    expected = framp("partition", TINY, "--out", tmp_path / "deal", "--json").json["sha256"]
    run = framp("run", TINY, "--out", tmp_path / "run", "--json").json
    assert run["results"]["partition_sha256"] == expected


def test_the_figure_shows_both_parts(dealt: Path) -> None:
    text = (dealt / "figures" / "labels.svg").read_text()
    for words in ("Training samples", "Test samples", "Overlap", "client", "independent test"):
        assert words in text
    assert (dealt / "figures" / "labels.png").stat().st_size > 10_000


def test_another_partition_in_the_folder_is_left_alone(dealt: Path, framp: Any) -> None:
    framp("partition", "digits", "--out", dealt).refused("another partition", "--out")
    framp("partition", "digits", "--set", "partition.clients=2000", "--out", dealt).refused("partition.clients")


def test_images_are_not_cut_as_graphs_are(tmp_path: Path, framp: Any) -> None:
    result = framp("partition", "digits", "--set", "partition.kind=metis", "--out", tmp_path / "cut")
    result.refused("partition.kind 'metis' cuts graphs", "dirichlet")
    assert not (tmp_path / "cut").exists()


@pytest.mark.parametrize("file", ["labels.svg", "labels.png"])
def test_a_disk_that_is_full_leaves_nothing(file: str, dealt: Path, tmp_path: Path, framp: Any) -> None:
    size = next(dealt.rglob(file)).stat().st_size

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1))

    (tmp_path / "mine.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "new"):
        process = framp.spawn("partition", "digits", *SETTINGS, "--out", out, "--quiet", preexec_fn=limit)
        framp.ended(process).refused(str(out), "too large")
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
