import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from framp.client.describe import describe
from framp.data import Shard
from framp.data.kinds import Images
from framp.messages import Describe
from framp.models.features import DIMENSIONS, feature_extractor


def shard(samples: int, channels: int = 1, size: int = 8, seed: int = 0) -> Shard:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, channels, size, size), generator=generator, dtype=torch.uint8)
    moments = torch.full((channels, 1, 1), 0.5), torch.full((channels, 1, 1), 0.3)
    return Shard(images, torch.zeros(samples, dtype=torch.int64), *moments)


@settings(max_examples=15)
@given(st.integers(2, 300), st.integers(0, 10**6))
def test_the_order_of_the_samples_does_not_matter(samples: int, seed: int) -> None:
    own = shard(samples, seed=seed)
    order = np.random.default_rng(seed).permutation(samples)
    shuffled = Shard(own.images[order], own.labels[order], own.mean, own.std)
    torch.testing.assert_close(describe(shuffled, Describe(0, 0)), describe(own, Describe(0, 0)), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("channels", "size"), [(1, 1), (1, 8), (3, 7), (3, 32)])
def test_a_descriptor_is_128_numbers_whatever_the_images(channels: int, size: int) -> None:
    vector = describe(shard(3, channels, size), Describe(0, 0))
    assert vector.shape == (DIMENSIONS,) == (128,)
    assert vector.dtype == torch.float32
    assert bool(torch.isfinite(vector).all())
    assert bool((vector >= 0).all())  # a mean of rectified features
    assert vector.nbytes == 512


def test_a_descriptor_by_hand() -> None:
    own = shard(5, 3)
    layers = feature_extractor(Images(3, 8, 8), 11)
    assert isinstance(layers, nn.Sequential)
    maps, _ = own.batch(slice(None))
    for place in (0, 3, 6):
        convolution = layers[place]
        assert isinstance(convolution, nn.Conv2d)
        assert convolution.bias is not None
        assert not convolution.bias.any()
        maps = F.max_pool2d(F.relu(F.conv2d(maps, convolution.weight, padding=1)), 2, ceil_mode=True)
    expected = torch.stack([one.mean(dim=(1, 2)) for one in maps]).mean(dim=0)
    torch.testing.assert_close(describe(own, Describe(0, 11)), expected.detach(), atol=1e-6, rtol=1e-5)


def test_the_extractor_is_the_same_for_everybody_and_follows_from_the_seed_alone() -> None:
    own = shard(4)
    torch.manual_seed(1)
    first = describe(own, Describe(0, 5))
    torch.manual_seed(2)
    assert torch.equal(describe(own, Describe(0, 5)), first)
    assert not torch.equal(describe(own, Describe(0, 6)), first)
    assert not torch.equal(describe(shard(4, seed=1), Describe(0, 5)), first)


def test_describing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    describe(shard(4), Describe(0, 5))
    assert torch.equal(torch.get_rng_state(), before)
