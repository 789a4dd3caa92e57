import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framp.data import Partition, label_counts, partition, prior_overlap
from framp.data.dealing import KINDS, Pool, _assign_classes, _cut_unequal, _draw_equal, _level, _turns, log_dirichlet
from framp.errors import ConfigError, DataError
from framp.settings import PartitionConfig

ALPHAS = (1e-300, 0.01, 0.1, 1.0, 100.0, 1e300)


def balanced(classes: int, each: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


def check_disjoint(shards: tuple[np.ndarray, ...], samples: int) -> np.ndarray:
    everything = np.concatenate(shards)
    assert all(shard.dtype == np.int64 for shard in shards)
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < samples
    return np.array([len(shard) for shard in shards])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_kind_deals_each_sample_once_and_leaves_nobody_empty(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 12), "clients")
    classes = data.draw(st.integers(1, 6), "classes")
    sizes = data.draw(st.tuples(*[st.integers(clients, 80)] * 2), "sizes")
    generator = np.random.default_rng(data.draw(st.integers(0, 99), "labels"))
    train, test = (generator.integers(0, classes, size=size) for size in sizes)
    config = PartitionConfig(
        clients=clients,
        kind=data.draw(st.sampled_from(["dirichlet", "dirichlet-unbalanced", "iid"]), "kind"),
        alpha=data.draw(st.sampled_from(ALPHAS), "alpha"),
        test=data.draw(st.sampled_from(["matched", "independent"]), "test"),
        seed=data.draw(st.integers(0, 3), "seed"),
    )
    result = partition(train, test, classes, config)
    for shards, labels in ((result.train, train), (result.test, test)):
        assert len(shards) == clients
        held = check_disjoint(shards, len(labels))
        assert held.min() >= 1
        if config.kind == "dirichlet":
            assert set(held) == {len(labels) // clients}
        else:
            assert held.sum() == len(labels)
        if config.kind == "iid":
            assert held.max() - held.min() <= 1


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_partition_is_a_function_of_its_arguments(kind: str) -> None:
    train, test = balanced(5, 40), balanced(5, 20, 1)
    config = PartitionConfig(clients=10, kind=kind)
    first, again = (partition(train, test, 5, config) for _ in range(2))
    assert first.sha256 == again.sha256
    assert first.to_dict() == again.to_dict()
    other = partition(train, test, 5, dataclasses.replace(config, seed=1))
    assert other.sha256 != first.sha256
    independent = partition(train, test, 5, dataclasses.replace(config, test="independent"))
    for ours, theirs in zip(first.train, independent.train, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if kind != "iid":
        assert independent.sha256 != first.sha256


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_shards_mix_classes_even_if_the_set_is_sorted(kind: str) -> None:
    labels = np.repeat(np.arange(4), 100)
    config = PartitionConfig(clients=4, kind=kind, alpha=100.0, classes_per_client=4)
    for shard in partition(labels, labels, 4, config).train:
        assert len(np.unique(labels[shard[:40]])) == 4


@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet-unbalanced", "pathological"])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3])
def test_matched_test_labels_follow_the_training_labels_and_independent_ones_do_not(kind: str, alpha: float) -> None:
    train, test = balanced(10, 500), balanced(10, 200, 1)
    overlap = {}
    for mode in ("matched", "independent"):
        config = PartitionConfig(clients=20, kind=kind, alpha=alpha, test=mode)
        result = partition(train, test, 10, config)
        overlap[mode] = prior_overlap(label_counts(train, result.train, 10), label_counts(test, result.test, 10)).mean()
    assert overlap["matched"] > 0.85
    assert overlap["independent"] < 0.45


def test_alpha_sets_how_many_classes_a_client_holds() -> None:
    labels = balanced(10, 500)
    held = []
    for alpha in (0.01, 0.3, 100.0):
        result = partition(labels, labels, 10, PartitionConfig(clients=10, alpha=alpha))
        held.append(np.sort(label_counts(labels, result.train, 10))[:, -1].mean() / 500)
    assert held[0] > 0.55
    assert 0.25 < held[1] < 0.5
    assert held[2] < 0.15


@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet-unbalanced"])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_no_alpha_is_too_extreme_for_many_classes(kind: str, alpha: float) -> None:
    labels = balanced(50, 20)
    result = partition(labels, labels, 50, PartitionConfig(clients=40, kind=kind, alpha=alpha, test="independent"))
    check_disjoint(result.train, 1000)
    check_disjoint(result.test, 1000)


def test_classes_without_samples_are_no_obstacle() -> None:
    labels = balanced(3, 20) * 2
    for kind in KINDS:
        result = partition(labels, labels, 9, PartitionConfig(clients=4, kind=kind, alpha=0.01))
        assert label_counts(labels, result.train, 9)[:, 1::2].sum() == 0


def test_the_deal_has_the_law_of_the_published_redraws() -> None:
    """Who gets the two samples of the rare class? Compare with a transcription of the published loop."""
    labels = np.array([0, 0, 1, 1, 1, 1])

    def published(generator: np.random.Generator) -> bool:
        priors = generator.dirichlet([2.0, 2.0], size=3)
        left, sizes, rare = [2, 4], [0, 0, 0], [0, 0, 0]
        while sum(sizes) < 6:
            client = int(generator.integers(3))
            if sizes[client] == 2:
                continue
            label = int(generator.random() > priors[client][0])
            while not left[label]:
                label = int(generator.random() > priors[client][0])
            left[label] -= 1
            sizes[client] += 1
            rare[client] += label == 0
        return max(rare) == 2

    def ours(generator: np.random.Generator) -> bool:
        shards = _draw_equal(Pool(labels, 2, 3, generator), log_dirichlet(generator, 2.0, (3, 2)))
        return any(set(shard.tolist()) == {0, 1} for shard in shards)

    shares = [np.mean([draw(np.random.default_rng(seed)) for seed in range(3000)]) for draw in (published, ours)]
    assert abs(shares[0] - shares[1]) < 0.045


def test_turns_pass_over_clients_that_are_full() -> None:
    turns = _turns(np.random.default_rng(0), 7, 5)
    assert np.bincount(turns).tolist() == [5] * 7
    counts = np.zeros(4)
    for seed in range(1200):
        last = _turns(np.random.default_rng(seed), 2, 2)
        counts[2 * last[-2] + last[-1]] += 1
    # Of 2+2 turns the last two agree exactly if the first two did: probability 1/2, against 1/3 for a shuffle.
    assert abs((counts[0] + counts[3]) / 1200 - 0.5) < 0.05


@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_dirichlet_draws_have_the_moments_of_the_distribution(alpha: float) -> None:
    drawn = np.exp(log_dirichlet(np.random.default_rng(0), alpha, (20000, 4)))
    shares = drawn / drawn.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares.mean(axis=0), 0.25, atol=0.01)
    np.testing.assert_allclose(shares.var(axis=0), 0.25 * 0.75 / (4 * alpha + 1), rtol=0.06)


def test_unbalanced_test_samples_are_cut_like_the_training_samples() -> None:
    train, test = balanced(4, 300), balanced(4, 100, 1)
    config = PartitionConfig(clients=5, kind="dirichlet-unbalanced", alpha=0.5)
    result = partition(train, test, 4, config)
    train_counts, test_counts = label_counts(train, result.train, 4), label_counts(test, result.test, 4)
    assert np.abs(train_counts / 3 - test_counts).max() <= 2
    assert train_counts.sum(axis=1).std() > 0


def test_unbalanced_clients_hold_the_published_minimum_where_there_is_enough() -> None:
    for alpha in (0.01, 0.1, 1.0):
        pool = Pool(balanced(10, 100), 10, 20, np.random.default_rng(0))
        assert min(len(shard) for shard in _cut_unequal(pool, alpha)) >= 10


def test_the_poorest_are_given_what_they_want_of_the_richest() -> None:
    labels = np.array([0, 0, 1, 1])
    wanted = np.array([[5, 0], [0, 0], [0, 5]])
    shards = _level([np.array([], int), np.array([0, 1, 2, 3]), np.array([], int)], 1, labels, wanted)
    assert [labels[shard].tolist() for shard in shards] == [[0], [0, 1], [1]]


@pytest.mark.parametrize("mode", ["matched", "independent"])
@pytest.mark.parametrize(("clients", "each"), [(20, 2), (7, 3), (5, 10), (3, 1)])
def test_pathological_clients_hold_exactly_their_number_of_classes(clients: int, each: int, mode: str) -> None:
    train, test = balanced(10, 50), balanced(10, 20, 1)
    config = PartitionConfig(clients=clients, kind="pathological", classes_per_client=each, test=mode)
    result = partition(train, test, 10, config)
    train_counts, test_counts = label_counts(train, result.train, 10), label_counts(test, result.test, 10)
    for counts, shards, samples in ((train_counts, result.train, 500), (test_counts, result.test, 200)):
        check_disjoint(shards, samples)
        assert set((counts > 0).sum(axis=1)) == {each}
        holders = (counts > 0).sum(axis=0)
        assert holders.max() - holders.min() <= 1
        for label in np.flatnonzero(holders):
            own = counts[counts[:, label] > 0, label]
            assert own.max() - own.min() <= 1
            assert own.sum() == samples // 10
    if mode == "matched":
        np.testing.assert_array_equal(train_counts > 0, test_counts > 0)
    elif each < 10:
        assert ((train_counts > 0) != (test_counts > 0)).any()


@settings(max_examples=50, deadline=None)
@given(clients=st.integers(1, 30), classes=st.integers(1, 12), data=st.data())
def test_classes_are_assigned_as_evenly_as_possible(clients: int, classes: int, data: st.DataObject) -> None:
    each = data.draw(st.integers(1, classes))
    holdings = _assign_classes(Pool(np.arange(classes), classes, clients, np.random.default_rng(0)), each)
    assert set(holdings.sum(axis=1)) == {each}
    assert holdings.sum(axis=0).max() - holdings.sum(axis=0).min() <= 1


def test_counts_and_overlap_by_hand() -> None:
    labels = np.array([0, 0, 1, 2])
    counts = label_counts(labels, (np.array([0, 2]), np.array([1, 3, 2])), 4)
    assert counts.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]
    other = np.array([[0, 2, 2, 0], [0, 0, 0, 3]])
    np.testing.assert_allclose(prior_overlap(counts, other), [0.5, 0.0])
    np.testing.assert_allclose(prior_overlap(counts, 7 * counts), [1.0, 1.0])
    assert prior_overlap(np.zeros((1, 2)), np.ones((1, 2))).tolist() == [0.0]


def test_the_record_names_sizes_and_hashes() -> None:
    labels = balanced(2, 10)
    result = partition(labels, labels[:9], 2, PartitionConfig(clients=3, kind="iid"))
    record = json.loads(json.dumps(result.to_dict()))
    assert (record["schema"], record["sha256"]) == (1, result.sha256)
    assert [(entry["id"], entry["train"], entry["test"]) for entry in record["clients"]] == [
        (0, 7, 3),
        (1, 7, 3),
        (2, 6, 3),
    ]
    assert len({entry["sha256"] for entry in record["clients"]}) == 3


def test_a_partition_stays_what_it_was() -> None:
    """Pin the streams: a saved run must find its own partition again under a later version."""
    labels = np.arange(40) % 4
    hashes = {
        kind: partition(labels, labels, 4, PartitionConfig(clients=4, kind=kind)).sha256[:12] for kind in sorted(KINDS)
    }
    assert hashes == {
        "dirichlet": "4c5f848d46dc",
        "dirichlet-unbalanced": "04ab09eec134",
        "iid": "9ec21e77a23b",
        "pathological": "0b8ed2c3302f",
    }


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (PartitionConfig(clients=30), DataError, "the train split has 20 samples for 30 clients; lower .* at most 20"),
        (PartitionConfig(clients=11), DataError, "the test split has 10 samples for 11 clients"),
        (
            PartitionConfig(clients=2, kind="pathological", classes_per_client=3),
            ConfigError,
            "partition.classes_per_client is 3, more than the 2 classes of the set; lower it to at most 2",
        ),
        (
            PartitionConfig(clients=10, kind="pathological", classes_per_client=1),
            DataError,
            "client [0-9] is left without test samples by partition.kind 'pathological'; lower partition.clients",
        ),
        (PartitionConfig(kind="dirichlett"), ConfigError, "unknown value .* did you mean 'dirichlet'"),
    ],
)
def test_what_cannot_be_dealt_is_refused(config: PartitionConfig, error: type[Exception], message: str) -> None:
    train, test = balanced(2, 10), np.array([0] * 8 + [1] * 2)
    with pytest.raises(error, match=message) as caught:
        partition(train, test, 2, config)
    assert "\n" not in str(caught.value)


def test_partitions_compare_by_identity() -> None:
    empty = Partition((), (), "")
    assert empty == empty
    assert empty != Partition((), (), "")
