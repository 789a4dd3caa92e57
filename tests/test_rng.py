import hashlib

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from framp import rng

NAMES = st.tuples(st.integers(0, 2**64), st.integers(-1, 10**6), st.integers(-1, 10**6), st.text(max_size=12))


def test_the_streams_are_the_ones_that_published_runs_used() -> None:
    raw = rng.stream(0, 1, 2, "batches").bit_generator.random_raw(3)
    assert raw.tolist() == [11115834287255922861, 10272344869688058133, 13748734249190969086]
    assert rng.number(0, 1, 2, "batches") == 4762315552432532414
    assert rng.torch_generator(0, -1, -1, "hypernetwork").initial_seed() == 8798933877069300408
    assert rng.stream(0, 1, 2, "batches").permutation(8).tolist() == [4, 1, 0, 2, 6, 7, 3, 5]
    drawn = rng.stream(7, 3, rng.NOBODY, "participants").choice(100, 5, replace=False, shuffle=False)
    assert drawn.tolist() == [71, 83, 24, 28, 45]


@given(NAMES)
def test_a_stream_is_a_hash_of_its_name(name: tuple[int, int, int, str]) -> None:
    seed, round, client, purpose = name
    digest = hashlib.blake2b(f"{seed}/{round}/{client}/{purpose}".encode(), digest_size=16).digest()
    assert rng.number(*name) == sum(byte << (8 * place) for place, byte in enumerate(digest[:8])) // 2
    assert 0 <= rng.number(*name) < 2**63
    assert rng.torch_generator(*name).initial_seed() == rng.number(*name)
    key = int.from_bytes(digest, "little")
    expected = np.random.Philox(key=key).random_raw(4)
    np.testing.assert_array_equal(rng.stream(*name).bit_generator.random_raw(4), expected)


@given(NAMES, NAMES)
def test_two_names_are_two_streams(one: tuple[int, int, int, str], other: tuple[int, int, int, str]) -> None:
    assert (one == other) == (rng.number(*one) == rng.number(*other))
    first = [rng.stream(*name).integers(0, 2**63, 2).tolist() for name in (one, other)]
    assert (one == other) == (first[0] == first[1])


def test_each_part_of_the_name_matters() -> None:
    names = [(0, 0, 0, "a"), (1, 0, 0, "a"), (0, 1, 0, "a"), (0, 0, 1, "a"), (0, 0, 0, "b"), (0, 0, -1, "a")]
    assert len({rng.number(*name) for name in names}) == len(names)
    assert len({float(rng.stream(*name).random()) for name in names}) == len(names)
    assert len({float(torch.rand((), generator=rng.torch_generator(*name))) for name in names}) == len(names)


def test_drawing_from_a_stream_moves_no_other_one_and_no_global_generator() -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state(legacy=False)
    expected = rng.stream(0, 1, 2, "x").random(5)
    rng.stream(0, 1, 2, "x").random(1000)
    rng.stream(0, 1, 3, "x").random(1000)
    torch.rand(10, generator=rng.torch_generator(0, 1, 2, "x"))
    np.testing.assert_array_equal(rng.stream(0, 1, 2, "x").random(5), expected)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_equal(np.random.get_state(legacy=False), numpy_state)
