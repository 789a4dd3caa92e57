import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.data.graph import Graph
from framp.data.kinds import Images, Nodes
from framp.errors import ConfigError, ModelError
from framp.layout import ParameterLayout
from framp.models import IMAGE_NETWORKS, NamedArchitecture, ResNet18, SmallCNN, feature_width, initialised
from framp.models.norm import norm
from framp.settings import ModelConfig


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(IMAGE_NETWORKS)),
    st.integers(1, 33),
    st.integers(1, 33),
    st.sampled_from([1, 3]),
    st.sampled_from(["batch", "group"]),
    st.sampled_from([1, 3, 4]),
)
def test_images_of_any_size_and_colour(name: str, height: int, width: int, channels: int, kind: str, wide: int) -> None:
    architecture = NamedArchitecture(ModelConfig(name=name, width=wide, norm=kind), Images(channels, height, width), 7)
    model = initialised(architecture, 0)
    images = torch.randn(3, channels, height, width, generator=torch.Generator().manual_seed(0))
    features = model.features(images)  # type: ignore[operator]
    expected = {"cnn": 4, "resnet18": 8}[name] * wide
    assert features.shape == (3, expected)
    assert feature_width(model, Images(channels, height, width), 7) == expected
    logits = model(images)
    assert logits.shape == (3, 7)
    assert bool(torch.isfinite(logits).all())
    assert torch.equal(model.head(features), logits)  # type: ignore[operator]
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("name", "size"), [("cnn", 4), ("resnet18", 8)])
def test_a_last_batch_of_one_small_image_with_batch_statistics(name: str, size: int) -> None:
    model = NamedArchitecture(ModelConfig(name=name, width=4, norm="batch"), Images(1, size, size), 3)()
    assert model(torch.zeros(1, 1, size, size)).shape == (1, 3)


def test_the_small_networks_parameters_by_hand() -> None:
    layout = ParameterLayout.of(SmallCNN(1, 4, 4))
    assert layout.maskable == 9 * (1 * 4 + 4 * 8 + 8 * 16) + 16 * 4 + 4
    assert layout.size - layout.maskable == 2 * (4 + 8 + 16)


def test_batch_statistics_are_used_at_test_time_too() -> None:
    model = SmallCNN(1, 2, 4).eval()
    images = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    alone, together = model(images[:3]), model(images)[:3]
    assert not torch.allclose(alone, together, atol=1e-4)
    assert not list(model.buffers())


@pytest.mark.parametrize("model", [SmallCNN(1, 2, 4, "group"), ResNet18(1, 2, 4, "group")])
def test_group_norm_does_not_look_at_the_batch(model: nn.Module) -> None:
    images = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(images[:3]), model(images)[:3], atol=1e-5, rtol=0)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in model.modules())


def test_norms() -> None:
    for channels, groups in ((1, 1), (2, 2), (3, 1), (8, 2)):
        maps = torch.randn(2, channels, 3, 3, generator=torch.Generator().manual_seed(channels))
        torch.testing.assert_close(norm("group", channels)(maps), F.group_norm(maps, groups), atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match=r"unknown norm 'bath'; did you mean 'batch'\?"):
        norm("bath", 4)


def test_an_unknown_network_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'resnet'; did you mean 'resnet18'\?"):
        NamedArchitecture(ModelConfig(name="resnet"), Images(1, 8, 8), 2)()


class Sampling(nn.Module):
    """Draws from torch's global generator while it is built, as layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(4, 2)

    def features(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :4]

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


def weights(model: nn.Module) -> Tensor:
    return ParameterLayout.of(model).flatten(model)


def test_an_initial_network_follows_from_its_seed_alone() -> None:
    torch.manual_seed(1)
    first = weights(initialised(Sampling, 0))
    torch.manual_seed(2)
    torch.rand(17)
    assert torch.equal(weights(initialised(Sampling, 0)), first)
    assert not torch.equal(weights(initialised(Sampling, 1)), first)


def test_building_a_network_leaves_torchs_global_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    initialised(Sampling, 5)
    assert torch.equal(torch.get_rng_state(), before)


class WithoutHead(nn.Module):
    def features(self, images: Tensor) -> Tensor:
        return images


class WithoutFeatures(nn.Module):
    def head(self, features: Tensor) -> Tensor:
        return features


@pytest.mark.parametrize(("architecture", "missing"), [(WithoutHead, "head"), (WithoutFeatures, "features")])
def test_a_network_that_takes_no_prototypes_is_refused(architecture: type[nn.Module], missing: str) -> None:
    with pytest.raises(ModelError) as caught:
        initialised(architecture, 0)
    assert str(caught.value) == (
        f"{architecture.__name__} has no method '{missing}'; "
        "a network offers features(inputs) and head(features), so that prototypes can be taken in between"
    )


class Maps(Sampling):
    def features(self, images: Tensor) -> Tensor:
        return images


def test_features_that_are_no_vectors_are_refused() -> None:
    assert feature_width(Sampling(), Images(1, 2, 2), 2) == 4
    assert feature_width(Sampling().double(), Images(1, 2, 2), 2) == 4
    with pytest.raises(ModelError) as caught:
        feature_width(Maps(), Images(1, 2, 2), 2)
    assert str(caught.value) == (
        "Maps.features returns a tensor of 4 dimensions; it has to return one vector a sample, [batch, features]"
    )


class OfAllNodes(nn.Module):
    """A network that forgets which nodes it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(3, 2)

    def features(self, graph: Graph) -> Tensor:
        return graph.propagated

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


def test_features_of_nodes_that_nobody_asked_about_are_refused() -> None:
    with pytest.raises(ModelError) as caught:
        feature_width(OfAllNodes(), Nodes(3), 2)
    assert str(caught.value) == (
        "OfAllNodes.features returns 3 vectors for 2 samples; it has to return one vector a sample, of a graph "
        "graph.asked(values): those of the nodes asked about"
    )


class Flat(Sampling):
    def head(self, features: Tensor) -> Tensor:
        return super().head(features).flatten()


@pytest.mark.parametrize(("module", "shape"), [(Sampling(), "[2, 2]"), (Flat(), "[4]")])
def test_a_head_that_does_not_tell_all_classes_apart_is_refused(module: nn.Module, shape: str) -> None:
    assert feature_width(Sampling(), Images(1, 2, 2), 1) == 4  # an output to spare does no harm
    with pytest.raises(ModelError) as caught:
        feature_width(module, Images(1, 2, 2), 3)
    assert str(caught.value) == (
        f"{type(module).__name__}.head returns a tensor {shape} for 2 samples of 3 classes; "
        "it has to return one number a class, [batch, 3]"
    )
