import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.server.spool import InMemory
from framp.updates import BLOCK, Block, MaskedUpdate, blocks


def update(client: int, maskable: int, indices: list[int] | None, always: int, seed: int) -> MaskedUpdate:
    generator = torch.Generator().manual_seed(seed)
    held = maskable if indices is None else len(indices)
    return MaskedUpdate(
        client,
        maskable,
        None if indices is None else InMemory(torch.tensor(indices, dtype=torch.int32)),
        InMemory(torch.randn(held, generator=generator, dtype=torch.float64)),
        torch.randn(always, generator=generator, dtype=torch.float64),
        always,
    )


@st.composite
def rounds(draw: st.DrawFn) -> list[MaskedUpdate]:
    maskable, always = draw(st.integers(1, 40)), draw(st.integers(0, 3))
    sets = st.one_of(st.none(), st.sets(st.integers(0, maskable - 1), max_size=maskable).map(sorted))
    held = draw(st.lists(sets, min_size=1, max_size=5))
    return [update(client, maskable, indices, always, client) for client, indices in enumerate(held)]


def dense(updates: list[MaskedUpdate]) -> tuple[Tensor, Tensor]:
    """The whole matrix of changes and who held what, by plain loops."""
    maskable, size = updates[0].maskable, updates[0].maskable + len(updates[0].always)
    changes, held = torch.zeros(len(updates), size, dtype=torch.float64), torch.zeros(len(updates), size)
    for row, one in enumerate(updates):
        indices = range(maskable) if one.indices is None else one.indices.read(0, len(one.indices)).tolist()
        for place, index in enumerate(indices):
            changes[row, index] = one.values.read(place, place + 1)[0]
            held[row, index] = 1
        changes[row, maskable:] = one.always
        held[row, maskable:] = 1
    return changes, held


def places(block: Block, size: int) -> list[int]:
    found: list[int] = torch.arange(size)[block.rows].tolist()
    return found


@given(rounds(), st.integers(1, 45))
def test_blocks_are_the_dense_matrix(updates: list[MaskedUpdate], size: int) -> None:
    changes, held = dense(updates)
    total = changes.shape[1]
    found, seen = torch.zeros_like(changes), []
    holders = torch.zeros(total)
    for block in blocks(updates, size):
        rows = places(block, total)
        assert rows == sorted(rows)
        assert block.changes.shape == (len(updates), len(rows))
        assert block.changes.dtype == torch.float64
        found[:, rows] = block.changes
        holders[rows] = torch.as_tensor(block.holders).float().expand(len(rows))
        seen += rows
    assert torch.equal(found, changes)
    assert torch.equal(holders, held.sum(dim=0))
    assert seen == sorted(set(seen))  # in ascending order, nothing twice
    assert set(seen) >= set(held.sum(dim=0).nonzero().squeeze(1).tolist())  # nothing left out


@given(rounds(), st.integers(1, 45))
def test_a_block_is_a_range_where_most_of_it_is_held_and_an_index_where_little_is(
    updates: list[MaskedUpdate], size: int
) -> None:
    _, held = dense(updates)
    maskable = updates[0].maskable
    anybody = held.sum(dim=0) > 0
    kinds = {}
    for block in blocks(updates, size):
        rows = places(block, held.shape[1])
        kinds[rows[0] // size if rows[0] < maskable else -1] = block.rows
        if isinstance(block.rows, Tensor):
            assert bool(anybody[rows].all())
    for number in range(-(-maskable // size)):
        part = anybody[number * size : min((number + 1) * size, maskable)]
        if 2 * int(part.sum()) > len(part):
            assert isinstance(kinds[number], slice)
        elif part.any():
            assert isinstance(kinds[number], Tensor)
        else:
            assert number not in kinds


def test_a_blocks_part_is_read_and_written_back() -> None:
    vector, matrix = torch.arange(10.0), torch.arange(20.0).view(10, 2)
    for rows in (slice(2, 5), torch.tensor([2, 3, 4])):
        block = Block(rows, torch.zeros(1, 3), 1.0)
        part = block.of(vector)
        part += 1
        block.put(vector, part)
        rows_of_matrix = block.of(matrix)
        rows_of_matrix *= 2
        block.put(matrix, rows_of_matrix)
    assert vector.tolist() == [0, 1, 4, 5, 6, 5, 6, 7, 8, 9]
    assert matrix[2:5].flatten().tolist() == [16, 20, 24, 28, 32, 36]
    assert matrix[5].tolist() == [10, 11]


@pytest.mark.parametrize("maskable", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_the_usual_size_of_a_block(maskable: int) -> None:
    last = update(0, maskable, [0, maskable - 1], 0, 0)
    found = [row for block in blocks([last]) for row in places(block, maskable)]
    assert found == [0, maskable - 1]
    whole = update(0, maskable, None, 1, 0)
    lengths = [block.changes.shape[1] for block in blocks([whole])]
    assert lengths == ([BLOCK, 1, 1] if maskable > BLOCK else [maskable, 1])


def test_what_always_travels_of_a_smaller_network_has_its_own_holders() -> None:
    whole = update(0, 2, [0], 4, 1)
    part = MaskedUpdate(
        1, 2, InMemory(torch.tensor([1], dtype=torch.int32)), InMemory(torch.tensor([5.0], dtype=torch.float64)),
        torch.tensor([7.0, 8.0], dtype=torch.float64), 4, torch.tensor([0, 3]),
    )  # fmt: skip
    none = MaskedUpdate(
        2, 2, None, InMemory(torch.ones(2, dtype=torch.float64)), torch.empty(0, dtype=torch.float64), 4,
        torch.empty(0, dtype=torch.int64),
    )  # fmt: skip
    *_, last = blocks([whole, part, none])
    assert last.rows == slice(2, 6)
    assert last.changes.tolist() == [whole.always.tolist(), [7, 0, 0, 8], [0, 0, 0, 0]]
    assert torch.as_tensor(last.holders).tolist() == [2, 1, 1, 2]
    assert last.changes.dtype == torch.as_tensor(last.holders).dtype == torch.float64


@given(st.integers(1, 12), st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=5))
def test_places_are_the_dense_matrix(above: int, sets: list[set[int]]) -> None:
    held = [sorted(place for place in places if place < above) for places in sets]
    updates, changes = [], torch.zeros(len(held), above, dtype=torch.float64)
    for client, own in enumerate(held):
        values = torch.arange(1.0, len(own) + 1, dtype=torch.float64) * (client + 1)
        nothing = InMemory(torch.empty(0, dtype=torch.int32)), InMemory(torch.empty(0, dtype=torch.float64))
        updates.append(MaskedUpdate(client, 3, *nothing, values, above, torch.tensor(own, dtype=torch.int64)))
        for place, value in zip(own, values.tolist(), strict=True):
            changes[client, place] = value
    (block,) = blocks(updates)
    assert places(block, 3 + above) == list(range(3, 3 + above))
    assert torch.equal(block.changes, changes)
    counts = [sum(place in own for own in held) for place in range(above)]
    assert torch.as_tensor(block.holders).tolist() == counts
