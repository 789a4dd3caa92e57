from pathlib import Path

import numpy as np
import torch

from framp.data import Dataset
from framp.data.shard import Shard, augment


def coloured(count: int = 10) -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, size=(count, 3, 8, 8), dtype=np.uint8)
    return Dataset.from_arrays("x", images, np.arange(count), images[:4], np.arange(4))


def test_a_batch_is_normalised_by_hand() -> None:
    shard = Shard(
        images=torch.tensor([[[[0, 255]]], [[[51, 102]]]], dtype=torch.uint8),
        labels=torch.tensor([3, 4]),
        mean=torch.tensor([[[0.2]]]),
        std=torch.tensor([[[0.5]]]),
    )
    images, labels = shard.batch(torch.tensor([1, 0]))
    torch.testing.assert_close(images, torch.tensor([[[[0.0, 0.4]]], [[[-0.4, 1.6]]]]))
    assert labels.tolist() == [4, 3]
    assert images.dtype == torch.float32
    assert shard.batch(slice(0, 1), torch.float64)[0].dtype == torch.float64
    assert shard.images.dtype == torch.uint8
    assert len(shard) == 2


def test_all_training_images_have_mean_zero_and_deviation_one() -> None:
    images, _ = Shard.of(coloured(), "train").batch(slice(None), torch.float64)
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(images.std((0, 2, 3), False), torch.ones(3, dtype=torch.float64), atol=1e-6, rtol=0)


def test_a_shard_copies_the_samples_named(tmp_path: Path) -> None:
    dataset = coloured()
    mapped = dataset.save(tmp_path / "set")
    for source in (dataset, mapped):
        shard = Shard.of(source, "train", np.array([7, 2]))
        assert shard.labels.tolist() == [7, 2]
        np.testing.assert_array_equal(shard.images.numpy(), dataset.train.images[[7, 2]])
        shard.images.zero_()
        assert source.train.images.any()
        everything = Shard.of(source, "test", None)
        assert len(everything) == 4
        np.testing.assert_array_equal(everything.images.numpy(), dataset.test.images)


def test_augmented_images_are_crops_and_flips_of_their_own_image() -> None:
    images = torch.arange(1.0, 1 + 6 * 2 * 8 * 16).reshape(6, 2, 8, 16)
    augmented = augment(images, np.random.default_rng(3))
    assert augmented.shape == images.shape
    padded = torch.nn.functional.pad(images, (2, 2, 1, 1))
    for original, result in zip(padded, augmented, strict=True):
        crops = [original[:, y : y + 8, x : x + 16] for y in range(3) for x in range(5)]
        assert sum(bool(torch.equal(result, crop)) or bool(torch.equal(result, crop.flip(2))) for crop in crops) == 1


def test_augmentation_reaches_every_crop_and_flip_alike() -> None:
    images = torch.arange(1.0, 65.0).reshape(1, 1, 8, 8).expand(3600, 1, 8, 8)
    augmented = augment(images, np.random.default_rng(0))
    found, counts = torch.unique(augmented.reshape(3600, 64), dim=0, return_counts=True)
    assert len(found) == 3 * 3 * 2
    assert counts.min() > 140
    assert counts.max() < 260


def test_augmentation_repeats_with_its_generator_and_leaves_its_input() -> None:
    images = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    kept = images.clone()
    first, again, other = (augment(images, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(images, kept)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_tiny_images_are_only_flipped() -> None:
    images = torch.arange(4.0).reshape(1, 1, 2, 2).expand(50, 1, 2, 2)
    assert len(torch.unique(augment(images, np.random.default_rng(0)).reshape(50, 4), dim=0)) == 2
