import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.messages import Prototypes
from framp.server import GlobalPrototypes


def received(vectors: list[list[float]], counts: list[int]) -> Prototypes:
    return Prototypes(torch.tensor(vectors, dtype=torch.float64), torch.tensor(counts))


FIRST = [
    received([[1, 2], [3, 4], [9, 9], [0, 0]], [1, 3, 0, 0]),
    received([[5, 6], [9, 9], [7, 8], [0, 0]], [3, 0, 2, 0]),
]


def test_each_holder_counts_once() -> None:
    prototypes = GlobalPrototypes(4, 2, torch.float64, weighted=False)
    prototypes.merge(FIRST)
    assert prototypes.vectors.tolist() == [[3, 4], [3, 4], [7, 8], [0, 0]]
    assert prototypes.counts.tolist() == [2, 1, 1, 0]


def test_each_holder_counts_by_its_samples() -> None:
    prototypes = GlobalPrototypes(4, 2, torch.float64, weighted=True)
    prototypes.merge(FIRST)
    assert prototypes.vectors.tolist() == [[4, 5], [3, 4], [7, 8], [0, 0]]
    assert prototypes.counts.tolist() == [2, 1, 1, 0]


def test_what_nobody_held_is_kept() -> None:
    prototypes = GlobalPrototypes(4, 2, torch.float64, weighted=False)
    prototypes.merge(FIRST)
    prototypes.merge([received([[0, 0], [10, 20], [0, 0], [1, 1]], [0, 5, 0, 2])])
    assert prototypes.vectors.tolist() == [[3, 4], [10, 20], [7, 8], [1, 1]]
    assert prototypes.counts.tolist() == [2, 1, 1, 1]
    prototypes.merge([])
    assert prototypes.vectors.tolist() == [[3, 4], [10, 20], [7, 8], [1, 1]]


def test_a_snapshot_is_a_copy_and_there_is_none_before_the_first_prototype() -> None:
    prototypes = GlobalPrototypes(4, 2, torch.float64, weighted=False)
    assert prototypes.snapshot() is None
    prototypes.merge([received([[9, 9]] * 4, [0, 0, 0, 0])])
    assert prototypes.snapshot() is None
    prototypes.merge(FIRST)
    snapshot = prototypes.snapshot()
    assert snapshot is not None
    prototypes.merge([received([[50, 50]] * 4, [1, 1, 1, 1])])
    assert snapshot.vectors[0].tolist() == [3, 4]
    assert snapshot.counts.tolist() == [2, 1, 1, 0]


def test_the_state_is_the_memory_itself_and_can_be_taken_over() -> None:
    one, other = (GlobalPrototypes(4, 2, torch.float64, weighted=False) for _ in range(2))
    state = one.state()
    one.merge(FIRST)
    assert state["prototypes.vectors"][0].tolist() == [3, 4]
    for name, tensor in other.state().items():  # as the server takes a state over
        tensor.copy_(state[name])
    one.merge([received([[50, 50]] * 4, [1, 1, 1, 1])])
    assert other.vectors.tolist() == [[3, 4], [3, 4], [7, 8], [0, 0]]
    assert other.counts.tolist() == [2, 1, 1, 0]


@given(st.integers(1, 5), st.integers(1, 4), st.booleans(), st.integers(0, 10**6))
def test_merging_is_the_transcribed_mean(holders: int, classes: int, weighted: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    parts = [
        Prototypes(
            torch.randn(classes, 2, generator=generator, dtype=torch.float64),
            torch.randint(4, (classes,), generator=generator),
        )
        for _ in range(holders)
    ]
    prototypes = GlobalPrototypes(classes, 2, torch.float64, weighted)
    prototypes.vectors.fill_(7)
    prototypes.merge(parts)
    for label in range(classes):
        for j in range(2):
            total, mass = 0.0, 0
            for part in parts:
                count = int(part.counts[label])
                weight = count if weighted else int(count > 0)
                total += weight * float(part.vectors[label, j])
                mass += weight
            expected = total / mass if mass else 7.0
            assert abs(float(prototypes.vectors[label, j]) - expected) < 1e-12
