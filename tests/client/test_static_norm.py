import pytest
import torch
from torch import Tensor, nn

from framp.client.static_norm import static_norms
from framp.data import Shard
from framp.models import SmallCNN
from framp.models.norm import BatchNorm


class Single(nn.Module):
    """A batch norm of the images."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = BatchNorm(1)
        with torch.no_grad():
            self.norm.weight.fill_(2.0)
            self.norm.bias.fill_(0.5)

    def features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.norm(images)
        return maps


def shard(values: list[list[int]]) -> Shard:
    """Images of one row each, seen as they are."""
    images = torch.tensor(values, dtype=torch.uint8).view(len(values), 1, 1, -1)
    return Shard(
        images, torch.zeros(len(values), dtype=torch.int64), torch.zeros(1, 1, 1), torch.full((1, 1, 1), 1 / 255)
    )


# batches of two: (1, 3, 5, 7) with mean 4 and variance 20/3 of three; then (10, 14) with 12 and 8 of one
TRAINING = shard([[1, 3], [5, 7], [10, 14]])
MEAN, VARIANCE = (4 + 12) / 2, (20 / 3 + 8) / 2


def test_statistics_are_the_mean_over_the_batches_of_one_pass() -> None:
    model = Single()
    with static_norms(model, TRAINING, 2):
        assert model.norm.running_mean is not None
        assert model.norm.running_var is not None
        assert float(model.norm.running_mean) == pytest.approx(MEAN, abs=1e-4)
        assert float(model.norm.running_var) == pytest.approx(VARIANCE, abs=1e-4)
        assert not model.training


@pytest.mark.parametrize("batch", [1, 2])
def test_they_are_used_whatever_the_batches_of_the_exam(batch: int) -> None:
    model = Single()
    images, _ = shard([[2, 4], [9, 0]]).batch(slice(None))
    expected = 2 * (images - MEAN) / (VARIANCE + model.norm.eps) ** 0.5 + 0.5
    with static_norms(model, TRAINING, 2):
        found = torch.cat([model.features(part) for part in images.tensor_split(len(images) // batch)])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_a_single_value_is_normalised_by_them_too() -> None:
    model = Single()
    with static_norms(model, TRAINING, 2):
        found = model.features(torch.full((1, 1, 1, 1), 9.0)).item()
    assert found == pytest.approx(2 * (9 - MEAN) / VARIANCE**0.5 + 0.5, abs=1e-3)


def test_afterwards_there_is_no_trace() -> None:
    model = SmallCNN(1, 3, 2).train()
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    training = Shard(
        torch.randint(0, 256, (7, 1, 8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.uint8),
        torch.zeros(7, dtype=torch.int64), torch.zeros(1, 1, 1), torch.ones(1, 1, 1),
    )  # fmt: skip
    before = model(images)
    with pytest.raises(ZeroDivisionError), static_norms(model, training, 3):
        raise ZeroDivisionError
    assert not any(layer.track_running_stats for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
    assert list(model.buffers()) == []
    assert torch.equal(model(images), before)
    assert torch.equal(model.eval()(images), before)


def test_a_network_without_batch_norms_is_left_alone() -> None:
    model = SmallCNN(1, 3, 2, "group")
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    before = model(images)
    training = Shard(
        torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), torch.zeros(1, 1, 1),
        torch.ones(1, 1, 1),
    )  # fmt: skip
    with static_norms(model, training, 2):
        assert torch.equal(model(images), before)


def test_norms_without_weights_gather_statistics_too() -> None:
    model = Single()
    model.norm = nn.BatchNorm2d(1, affine=False, track_running_stats=False)  # type: ignore[assignment]
    model.classifier = nn.Linear(1, 1)
    with static_norms(model, TRAINING, 2):
        assert float(model.norm.running_mean or 0) == pytest.approx(MEAN, abs=1e-4)
    assert model.norm.running_mean is None


class Dropping(Single):
    """Some features are dropped before the batch norm while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.9)

    def features(self, images: Tensor) -> Tensor:
        return super().features(self.dropout(images))


def test_nothing_is_dropped_while_they_are_gathered() -> None:
    model = Dropping()
    with static_norms(model, TRAINING, 2):
        assert model.norm.running_mean is not None
        assert float(model.norm.running_mean) == pytest.approx(MEAN, abs=1e-4)
