from collections.abc import Iterator
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.layout import Entry, ParameterLayout
from framp.settings import GenerationConfig
from framp.stage1_generation import BlockwiseHypernetwork, Hypernetwork
from framp.stage1_generation.cuts import Cut, cuts
from framp.updates import Block

NAMES = ("inner.weight", "inner.bias", "head.codes", "head.bases", "head.bias")
SHAPES = ((3, 2, 3), (4,), (2, 7), (5, 1), (), (1, 11))


def layout_of(shapes: tuple[tuple[int, ...], ...]) -> ParameterLayout:
    entries: list[Entry] = []
    for number, shape in enumerate(shapes):
        entries.append(Entry(str(number), shape, entries[-1].stop if entries else 0))
    return ParameterLayout(tuple(entries), entries[-1].stop, entries[-1].stop, torch.float64)


def network(
    shapes: tuple[tuple[int, ...], ...],
    hidden: int = 4,
    block: int = 4096,
    latent: int = 2,
    seed: int = 0,
    centred: bool = True,
) -> BlockwiseHypernetwork:
    """A network for tensors of some shapes, all of its numbers random, bases too."""
    generator = torch.Generator().manual_seed(seed)
    size = sum(prod(shape) for shape in shapes)
    config = GenerationConfig(hidden=hidden, block=block, latent=latent, centred=centred)
    target = torch.randn(size, generator=generator, dtype=torch.float64)
    average = torch.randn(3, generator=generator, dtype=torch.float64)
    made = BlockwiseHypernetwork.configured(config, layout_of(shapes), target, average, generator)
    for tensor in made.state().values():
        tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    return made


def weights(cuts: list[Cut], codes: Tensor, bases: Tensor) -> Tensor:
    """W as a matrix, entry by entry: the row of entry j of block k is Σ_l B_lj C_kl."""
    rows = []
    place = 0
    for cut in cuts:
        whole = cut.latent == cut.length
        for entry in range(cut.stop - cut.start):
            block, column = divmod(entry, cut.length)
            first = cut.codes_from + block * cut.latent
            if whole:
                rows.append(codes[first + column])
                continue
            own = [bases[place + one * cut.length + column] for one in range(cut.latent)]
            rows.append(torch.stack([basis * codes[first + one] for one, basis in enumerate(own)]).sum(dim=0))
        place += 0 if whole else cut.latent * cut.length
    return torch.stack(rows)


def dense(made: BlockwiseHypernetwork) -> Hypernetwork:
    """The full head with the same W."""
    return Hypernetwork(
        made.inner.clone(), made.inner_bias.clone(), weights(made.cuts, made.codes, made.bases),
        made.head_bias.clone(), made.average, made.centred,
    )  # fmt: skip


def cut_up(changes: Tensor, held: Tensor, size: int, indexed: bool) -> Iterator[Block]:
    """The changes as blocks of some size, as ranges or as indices of the entries that somebody held."""
    for start in range(0, changes.shape[1], size):
        rows = torch.arange(start, min(start + size, changes.shape[1]))
        holders = held[:, rows].sum(dim=0)
        if not indexed:
            yield Block(slice(start, start + len(rows)), changes[:, rows], holders.double())
        elif holders.any():
            rows = rows[holders > 0]
            yield Block(rows, changes[:, rows], held[:, rows].sum(dim=0).double())


@st.composite
def problems(draw: st.DrawFn) -> tuple[BlockwiseHypernetwork, Tensor, Tensor, Tensor]:
    shape = st.lists(st.integers(1, 5), min_size=0, max_size=3).map(tuple)
    shapes = tuple(draw(st.lists(shape, min_size=1, max_size=5)))
    seed, participants = draw(st.integers(0, 10**6)), draw(st.integers(1, 4))
    made = network(shapes, draw(st.integers(1, 5)), draw(st.integers(1, 12)), draw(st.integers(1, 6)), seed)
    made.centred = draw(st.booleans())
    generator = torch.Generator().manual_seed(seed + 1)
    size = made.head_bias.numel()
    held = torch.rand(participants, size, generator=generator) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    changes = torch.randn(participants, size, generator=generator, dtype=torch.float64) * held
    return made, torch.randn(participants, 3, generator=generator, dtype=torch.float64), changes, held


@given(problems(), st.integers(1, 30), st.booleans())
def test_a_step_is_one_of_descent_by_autograd(
    problem: tuple[BlockwiseHypernetwork, Tensor, Tensor, Tensor], size: int, indexed: bool
) -> None:
    made, descriptors, changes, held = problem
    state = {name: made.state()[name].clone().requires_grad_() for name in NAMES}

    def hidden(seen: Tensor) -> Tensor:
        return torch.relu(seen @ state["inner.weight"].T + state["inner.bias"])

    features = hidden(descriptors) - hidden(made.average) if made.centred else hidden(descriptors)
    matrix = weights(made.cuts, state["head.codes"], state["head.bases"])
    loss = -((features @ matrix.T + state["head.bias"]) * changes).sum() / len(descriptors)
    gradients = torch.autograd.grad(loss, [state[name] for name in NAMES], materialize_grads=True)
    made.learn(descriptors, cut_up(changes, held, size, indexed), 0.3, 0.3, by_holders=False)
    for name, gradient in zip(NAMES, gradients, strict=True):
        expected = state[name].detach() - 0.3 * gradient
        torch.testing.assert_close(made.state()[name], expected, atol=1e-10, rtol=0)


@given(problems(), st.floats(0, 1))
def test_models_are_those_of_the_same_matrix(
    problem: tuple[BlockwiseHypernetwork, Tensor, Tensor, Tensor], strength: float
) -> None:
    made, descriptors, _, _ = problem
    for descriptor in descriptors:
        bias = torch.ones_like(made.head_bias)
        torch.testing.assert_close(made.generate(descriptor), dense(made).generate(descriptor), atol=1e-10, rtol=0)
        expected = dense(made).between(bias, descriptor, strength)
        torch.testing.assert_close(made.between(bias, descriptor, strength), expected, atol=1e-10, rtol=0)
        assert bool((bias == 1).all())


@given(problems(), st.integers(1, 30), st.booleans(), st.booleans())
def test_a_code_as_long_as_a_block_makes_the_full_head(
    problem: tuple[BlockwiseHypernetwork, Tensor, Tensor, Tensor], size: int, indexed: bool, by_holders: bool
) -> None:
    _, descriptors, changes, held = problem
    shapes = ((changes.shape[1],),)
    made = network(shapes)
    full = dense(made)
    for one in (made, full):
        one.learn(descriptors, cut_up(changes, held, size, indexed), 0.7, 0.2, by_holders)
    torch.testing.assert_close(made.codes, full.head, atol=1e-10, rtol=0)
    for name in ("inner.weight", "inner.bias", "head.bias"):
        torch.testing.assert_close(made.state()[name], full.state()[name], atol=1e-10, rtol=0)


def test_one_participant_by_hand() -> None:
    """One hidden unit, v = 3, A = 2, a = 1, so f = 7; two blocks of two entries with the basis (3, 4) / 5.

    The codes are C = (1, 2), so W = (.6, .8, 1.2, 1.6). Held were the entries 0 and 1, Δ = (1, −2).
    """

    def tensor(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    made = BlockwiseHypernetwork(
        tensor(2).view(1, 1), tensor(1), tensor(1, 2).view(2, 1), tensor(0.6, 0.8), tensor(0, 0, 0, 1), tensor(0),
        False, cuts(layout_of(((2, 2),)).entries, block=2, latent=1),
    )  # fmt: skip
    torch.testing.assert_close(made.generate(tensor(3)), tensor(4.2, 5.6, 8.4, 12.2), atol=1e-14, rtol=0)
    block = Block(torch.tensor([0, 1]), tensor(1, -2).view(1, 2), tensor(1, 1))
    made.learn(tensor(3).view(1, 1), [block], shared_rate=0.5, personal_rate=0.1, by_holders=True)
    # z = .6·1 − .8·2 = −1:  C_0 += β·z·f = .1·(−1)·7;  C_1 stays
    torch.testing.assert_close(made.codes, tensor(0.3, 2).view(2, 1), atol=1e-14, rtol=0)
    # B += β·(C_0 f)·Δ = .1·7·(1, −2), with C as it was
    torch.testing.assert_close(made.bases, tensor(1.3, -0.6), atol=1e-14, rtol=0)
    torch.testing.assert_close(made.head_bias, tensor(0.5, -1, 0, 1), atol=1e-14, rtol=0)
    # C_0·z = −1:  A += β·(−1)·3,  a += β·(−1)
    torch.testing.assert_close(made.inner, tensor(1.7).view(1, 1), atol=1e-14, rtol=0)
    torch.testing.assert_close(made.inner_bias, tensor(0.9), atol=1e-14, rtol=0)


@pytest.mark.parametrize("indexed", [False, True])
def test_codes_of_blocks_that_nobody_held_stay_bitwise_as_they_are(indexed: bool) -> None:
    made = network(((8, 9), (6,)), latent=3)
    held = torch.zeros(2, 78, dtype=torch.bool)
    held[0, 9:14] = held[1, 30:50] = held[1, 74] = True  # blocks 1, 3 to 5 of the first tensor, one entry of the second
    generator = torch.Generator().manual_seed(0)
    changes = torch.randn(2, 78, generator=generator, dtype=torch.float64) * held
    kept = torch.ones(30, dtype=torch.bool)
    kept[3:6] = kept[9:18] = kept[26] = False
    made.codes[kept] = -0.0  # the sign is a bit too
    codes, bias = made.codes.clone(), made.head_bias.clone()
    made.learn(torch.ones(2, 3), cut_up(changes, held, 7, indexed), 1.0, 0.5, by_holders=True)
    assert torch.equal(made.codes[kept].view(torch.int64), codes[kept].view(torch.int64))
    assert not bool((made.codes[~kept] == codes[~kept]).all(dim=1).any())
    nobody = ~held.any(dim=0)
    assert torch.equal(made.head_bias[nobody].view(torch.int64), bias[nobody].view(torch.int64))


def test_the_initial_network() -> None:
    config = GenerationConfig(hidden=64, block=50, latent=5)
    layout = layout_of(((40, 120), (30,), (20, 4)))
    target, average = torch.arange(4910, dtype=torch.float64), torch.ones(16)

    def initial(seed: int) -> BlockwiseHypernetwork:
        generator = torch.Generator().manual_seed(seed)
        return BlockwiseHypernetwork.configured(config, layout, target, average, generator)

    made = initial(0)
    assert made.head_bias is target  # one full-size vector, not two
    assert [(cut.length, cut.latent, cut.count) for cut in made.cuts] == [(40, 5, 120), (1, 1, 30), (4, 4, 20)]
    assert made.codes.shape == (600 + 30 + 80, 64)
    assert torch.equal(made.generate(torch.full((16,), 3.0)), target)  # for everybody
    basis = made.bases.view(5, 40)
    torch.testing.assert_close(basis @ basis.T, torch.eye(5, dtype=torch.float64), atol=1e-12, rtol=0)
    assert torch.equal(initial(0).bases, made.bases)
    assert not torch.equal(initial(1).bases, made.bases)


def test_initial_codes_give_entries_their_layers_own_scale() -> None:
    made = network(((40, 120), (3000,), (20, 4)), hidden=64, latent=5)
    generator = torch.Generator().manual_seed(0)
    made.bases.copy_(torch.linalg.qr(torch.randn(120, 5, generator=generator, dtype=torch.float64))[0].T.flatten())
    scales = torch.tensor([0.5, 2.0, 0.0], dtype=torch.float64).repeat_interleave(torch.tensor([4800, 3000, 80]))
    made.scatter(scales, generator)
    matrix = weights(made.cuts, made.codes, made.bases)
    torch.testing.assert_close(float(matrix[:4800].std()), 0.5, atol=0, rtol=0.05)
    torch.testing.assert_close(float(matrix[4800:7800].std()), 2.0, atol=0, rtol=0.05)
    assert bool((matrix[7800:] == 0).all())
