"""The descriptors, and the feature extractor that the participants train, against loops over scalars: float32, 1e-6."""

import torch
from torch import Tensor

from framp import rng
from framp.data.kinds import Images
from framp.messages import Task
from framp.models.features import feature_extractor, flattened
from framp.server import play
from framp.stage1_generation.descriptors import feature_seed

from .features import Extractor, Maps, mean_features, standardised, train
from .scalars import Vector
from .test_golden import deviation
from .toy import CHANNELS, CLASSES, SIDE, Pair, Watching, numbers

EXTRACTOR = Extractor((CHANNELS, 32, 64, 128), CLASSES)
TOLERANCE = 1e-6


def maps(images: Tensor) -> list[Maps]:
    found: list[Maps] = images.tolist()
    return found


def described(pair: Pair, weights: Vector) -> list[Vector]:
    """Every client's mean feature."""
    clients = range(pair.config.partition.clients)
    return [mean_features(EXTRACTOR, weights, maps(pair.shard(n).batch(slice(None))[0])) for n in clients]


def flat(rows: list[Vector]) -> Vector:
    return [value for row in rows for value in row]


def assert_standardised(pair: Pair, raw: list[Vector]) -> None:
    """Compare what the hypernetwork sees, and the average client: the mean of that."""
    descriptors, average = pair.descriptors()
    expected = standardised(raw)
    assert deviation(flat(descriptors), flat(expected)) <= TOLERANCE
    middle = [sum(column) / len(column) for column in zip(*expected, strict=True)]
    assert deviation(average, middle) <= TOLERANCE


def test_a_descriptor_is_the_standardised_mean_feature() -> None:
    pair = Pair("framp", {}, torch.float32)
    with pair.federation:
        weights = numbers(flattened(feature_extractor(Images(CHANNELS, SIDE, SIDE), feature_seed(pair.config.seed))))
        raw = pair.federation.server.registry.descriptors
        assert deviation(numbers(raw), flat(described(pair, weights))) <= TOLERANCE
        assert_standardised(pair, raw.tolist())


def test_a_one_hot_descriptor_says_who_the_client_is() -> None:
    pair = Pair("framp-onehot", {}, torch.float64)
    with pair.federation:
        descriptors, average = pair.descriptors()
    assert descriptors == [[float(n == client) for n in range(8)] for client in range(8)]
    assert average == [1 / 8] * 8


def test_participants_train_the_feature_extractor_and_all_clients_describe_themselves_anew() -> None:
    """Every two rounds here: before the third the descriptors change, by the extractor of the second."""
    pair = Pair("framp-update", {"generation.refresh_every": 2}, torch.float32)
    server = pair.federation.server
    with pair.federation:
        state = server.state()
        first = state["descriptors.raw"].tolist()
        for round in (1, 2, 3):
            before = numbers(state["descriptors.extractor"])
            engine = Watching(pair.federation, {}, {})
            play(server, engine, round)
            trained = []
            for client, task in engine.tasks.items():
                trained.append(locally_trained(pair, task, before))
                changes = [now - then for now, then in zip(trained[-1], before, strict=True)]
                found = engine.updates[client].extractor
                assert found is not None
                assert deviation(numbers(found), changes) <= TOLERANCE
            merged = [sum(values) / len(values) for values in zip(*trained, strict=True)]
            assert deviation(numbers(state["descriptors.extractor"]), merged) <= TOLERANCE
            if round < 3:
                assert state["descriptors.raw"].tolist() == first
            else:
                assert deviation(numbers(state["descriptors.raw"]), flat(described(pair, before))) <= TOLERANCE
                assert state["descriptors.raw"].tolist() != first
        assert_standardised(pair, state["descriptors.raw"].tolist())


def locally_trained(pair: Pair, task: Task, weights: Vector) -> Vector:
    """One epoch on a client's own samples, in the order that its seed stands for."""
    assert task.extractor is not None
    assert numbers(task.extractor.parameters) == weights
    assert task.extractor.epochs == 1
    shard = pair.shard(task.client)
    order = rng.stream(task.seed, rng.NOBODY, rng.NOBODY, "batches of the feature extractor").permutation(len(shard))
    batches = []
    for rows in torch.split(torch.from_numpy(order), task.training.batch):
        images, labels = shard.batch(rows)
        batches.append((maps(images), labels.tolist()))
    return train(EXTRACTOR, weights, batches, task.extractor.rate)
