import csv
import io
import json

import numpy as np
import pytest

from framp.config import Config
from framp.data import Partition
from framp.report.labels import Labels, label_table, labels_csv

SHARDS = Partition((np.array([0, 1, 2]), np.array([3, 4])), (np.array([0]), np.array([1, 2])), "ab" * 32)


@pytest.fixture
def image_labels() -> Labels:
    return Labels.of(Config(name="toy"), np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0]), 2, SHARDS)


def test_images_have_no_edges(image_labels: Labels) -> None:
    table = label_table(image_labels)
    assert table.title == "toy: dirichlet, α = 0.3, matched test, 2 clients"
    assert [column.heading for column in table.columns] == ["", "mean", "min", "max"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["training samples a client", "2.50", "2", "3"],
        ["test samples a client", "1.50", "1", "2"],
        ["classes in a client's training samples", "1.50", "1", "2"],
        # shares 2/3 and 1/3 against 1 and 0; 0 and 1 against a half each
        ["overlap of train and test priors", "0.58", "0.50", "0.67"],
    ]
    assert len(table.notes) == 2
    assert labels_csv(image_labels).splitlines()[:2] == [
        "client,part,samples,overlap,class_0,class_1",
        "0,train,3,0.666667,2,1",
    ]
    assert set(image_labels.summary()) == {"sha256", "clients", "classes", "train", "test", "classes_held", "overlap"}


def test_the_table_of_a_graph_tells_its_cut(graph_labels: Labels) -> None:
    table = label_table(graph_labels)
    assert table.title == "toy: metis, 2 clients"
    texts = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert list(texts) == [
        "nodes a client",
        "training nodes a client",
        "test nodes a client",
        "edges a client keeps",
        "share of its edges cut off",
        "classes in a client's training nodes",
        "overlap of train and test priors",
    ]
    assert texts["nodes a client"] == ["10.00", "10", "10", "20"]
    assert texts["training nodes a client"][-1] == "8"
    assert texts["test nodes a client"][-1] == "6"
    assert texts["edges a client keeps"] == ["45.00", "45", "45", "90"]
    # 1 of the 46 edges of each client, 1 of 91 in all
    assert texts["share of its edges cut off"] == ["0.02", "0.02", "0.02", "0.01"]
    assert texts["classes in a client's training nodes"] == ["1.00", "1", "1", "–"]
    assert texts["overlap of train and test priors"] == ["1.00", "1.00", "1.00", "–"]
    assert "Cut: 1 of 91 edges" in table.notes[1]


def test_the_summary_of_a_graph_counts_a_cut_edge_once_in_all(graph_labels: Labels) -> None:
    summary = json.loads(json.dumps(graph_labels.summary()))
    assert summary["cut_edges"] == {"mean": 1.0, "min": 1, "max": 1, "total": 1}
    assert summary["cut_share"] == {"mean": 1 / 46, "min": 1 / 46, "max": 1 / 46, "total": 1 / 91}
    assert (summary["nodes"]["total"], summary["rest"]["total"], summary["edges"]["total"]) == (20, 6, 90)


def test_the_values_of_a_graph_have_its_nodes_and_edges(graph_labels: Labels) -> None:
    rows = list(csv.DictReader(io.StringIO(labels_csv(graph_labels))))
    assert list(rows[0]) == [
        *("client", "part", "samples", "overlap", "nodes", "edges", "cut_edges", "class_0", "class_1", "class_2")
    ]
    assert [(row["client"], row["part"]) for row in rows] == [
        *(("0", "train"), ("0", "test"), ("1", "train"), ("1", "test"))
    ]
    assert {(row["nodes"], row["edges"], row["cut_edges"]) for row in rows} == {("10", "45", "1")}
    assert all(sum(int(row[f"class_{number}"]) for number in range(3)) == int(row["samples"]) for row in rows)
    assert {row["class_1"] for row in rows} == {"0"}
