from itertools import combinations

import numpy as np
import pytest

from framp.config import Config
from framp.data.cutting import cut
from framp.data.graph_set import GraphSet
from framp.report.labels import Labels


@pytest.fixture
def graph_labels() -> Labels:
    """Two clients, each with a clique of ten nodes of a class of its own; one edge between them."""
    edges = [*combinations(range(10), 2), *combinations(range(10, 20), 2), (9, 10)]
    labels = np.repeat([0, 2], 10)
    graph = GraphSet.from_edges("toy", np.ones((20, 1)), np.array(edges).T, labels, 3)
    values = {"name": "toy", "partition.clients": 2, "partition.kind": "metis", "federation.participants": 1}
    config = Config().with_values(values)
    return Labels.of(config, labels, labels, 3, cut(graph, config.partition))
