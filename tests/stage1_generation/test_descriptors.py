import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.config import Config
from framp.data.kinds import Images
from framp.stage1_generation import Features, OneHot, descriptors


def raw(clients: int, dimensions: int, seed: int = 0, shift: float = 3.0) -> Tensor:
    return shift + 0.01 * torch.randn(clients, dimensions, generator=torch.Generator().manual_seed(seed))


def table(made: Features) -> Tensor:
    return torch.stack([made.of(client) for client in range(len(made.raw))])


def test_features_are_standardised_over_the_clients() -> None:
    made = Features(raw(40, 6), standardise=True)
    seen = table(made).double()
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(6, dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.std(dim=0, correction=0), torch.ones(6, dtype=torch.float64), atol=1e-4, rtol=0)
    assert made.dimensions == 6
    torch.testing.assert_close(made.mean(), seen.mean(dim=0).float(), atol=1e-6, rtol=0)


def test_standardising_by_hand() -> None:
    made = Features(torch.tensor([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0], [7.0, 5.0]]), standardise=True)
    # mean 4, variance 5; the second dimension is the same for everybody
    expected = torch.tensor([-3.0, -1.0, 1.0, 3.0]) / 5**0.5
    torch.testing.assert_close(table(made)[:, 0], expected, atol=1e-6, rtol=0)
    assert table(made)[:, 1].tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(made.seen(torch.tensor([9.0, 5.0])), torch.tensor([5**0.5, 0.0]), atol=1e-6, rtol=0)


def test_outliers_are_clipped_at_five() -> None:
    values = torch.zeros(100, 2)
    values[0, 0], values[1, 1] = 100.0, -100.0
    seen = table(Features(values, standardise=True))
    assert seen.max() == 5
    assert seen.min() == -5
    made = Features(values, standardise=True)
    torch.testing.assert_close(made.mean(), seen.double().mean(dim=0).float(), atol=1e-6, rtol=0)


def test_a_dimension_that_hardly_differs_stays_finite() -> None:
    values = torch.full((5, 2), 0.1)
    values[:, 1] = torch.tensor([0.0, 1e-12, 0.0, 0.0, 0.0])
    made = Features(values, standardise=True)
    assert bool(torch.isfinite(table(made)).all())
    assert table(made)[:, 0].abs().max() < 1  # 0.1 rounded is no difference between clients
    alone = Features(values[:1], standardise=True)
    assert alone.of(0).abs().max() == 0


def test_without_standardising_only_the_clip_remains() -> None:
    values = torch.tensor([[1.0, -2.0], [3.0, 9.0]])
    made = Features(values, standardise=False)
    assert made.of(0).tolist() == [1, -2]
    assert made.of(1).tolist() == [3, 5]
    assert made.mean().tolist() == [2, 1.5]


@given(st.integers(1, 50), st.integers(1, 9), st.integers(0, 10**6))
def test_chunks_change_nothing(clients: int, chunk: int, seed: int) -> None:
    values = raw(clients, 3, seed)
    with pytest.MonkeyPatch.context() as patch:
        whole = Features(values, standardise=True)
        patch.setattr(descriptors, "_CHUNK", chunk)
        cut = Features(values, standardise=True)
    torch.testing.assert_close(table(cut), table(whole), atol=1e-5, rtol=0)
    torch.testing.assert_close(cut.mean(), whole.mean(), atol=1e-5, rtol=0)
    assert torch.equal(cut.raw, values)


def test_features_are_set_up_from_the_configuration() -> None:
    values = raw(5, 3)
    assert torch.equal(Features.configured(Config(), values, Images(1, 8, 8), 4).of(2), Features(values, True).of(2))
    plain = Config().with_values({"generation.standardise": False})
    assert torch.equal(Features.configured(plain, values, Images(1, 8, 8), 4).of(2), values[2])
    assert Features.from_data()


def test_one_hot() -> None:
    made = OneHot.configured(Config(), torch.empty(4, 0), Images(1, 8, 8), 4)
    assert made.dimensions == 4
    assert torch.stack([made.of(client) for client in range(4)]).tolist() == torch.eye(4).tolist()
    assert made.mean().tolist() == [0.25] * 4
    assert not OneHot.from_data()
    with pytest.raises(IndexError):
        made.of(4)
