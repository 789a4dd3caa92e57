import pytest
import torch
from torch import Tensor, nn

from framp.errors import ModelError
from framp.models import MultiExit, ResNet18, SmallCNN, WithExits, blank

IMAGES = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def small() -> SmallCNN:
    return SmallCNN(3, 5, 2)


def test_an_exit_after_each_unit() -> None:
    model = MultiExit(ResNet18(3, 10, 2))
    assert model.depth == 8
    assert [tuple(tensor.shape) for name, tensor in model.exits.named_parameters() if name.endswith("weight")] == [
        (10, width) for width in (2, 2, 4, 4, 8, 8, 16)
    ]  # fmt: skip
    assert [tuple(logits.shape) for logits in model.exit_logits(IMAGES)] == [(3, 10)] * 8
    assert MultiExit(small()).depth == 3


@pytest.mark.parametrize("network", [small(), ResNet18(3, 5, 2)])
def test_with_all_exits_it_classifies_as_the_network_does(network: nn.Module) -> None:
    model = MultiExit(network)
    torch.testing.assert_close(model(IMAGES), network(IMAGES))
    torch.testing.assert_close(model.features(IMAGES), network.features(IMAGES))  # type: ignore[operator]
    torch.testing.assert_close(model.exit_logits(IMAGES)[-1], network(IMAGES))


def test_exits_by_hand() -> None:
    network = small()
    model = MultiExit(network)
    maps, expected = IMAGES, []
    for number, stage in enumerate(network.stages):
        maps = stage(maps)
        layer = network.classifier if number == 2 else model.exits[number]
        expected.append(maps.mean(dim=(2, 3)) @ layer.weight.T + layer.bias)
    for found, wanted in zip(model.exit_logits(IMAGES), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("names", "active"),
    [
        ({"exits.0.weight"}, (1,)),
        ({"exits.1.weight", "exits.1.bias"}, (2,)),
        ({"exits.0.weight", "exits.1.weight"}, (1, 2)),
        ({"exits.1.weight", "network.classifier.weight"}, (2, 3)),
        ({"exits.0.weight", "exits.1.weight", "network.classifier.weight"}, (1, 2, 3)),
    ],
)
def test_it_does_without_the_exits_that_are_not_there(names: set[str], active: tuple[int, ...]) -> None:
    model = MultiExit(small())
    everything = model.exit_logits(IMAGES)
    model.adopt(names)
    assert model.active == active
    for found, depth in zip(model.exit_logits(IMAGES), active, strict=True):
        torch.testing.assert_close(found, everything[depth - 1])
    torch.testing.assert_close(model(IMAGES), everything[active[-1] - 1])


def test_what_lies_behind_the_last_exit_is_not_run() -> None:
    network = small()
    ran: list[int] = []
    for number, stage in enumerate(network.stages, start=1):
        stage.register_forward_hook(lambda *_, number=number: ran.append(number))
    model = MultiExit(network)
    model.adopt({"exits.1.weight"})
    model.exit_logits(IMAGES)
    assert ran == [1, 2]


def test_the_trunk_starts_as_the_architecture_does() -> None:
    plain, with_exits = blank(small).state_dict(), blank(WithExits(small)).state_dict()
    for name, tensor in plain.items():
        assert torch.equal(with_exits[f"network.{name}"], tensor)
    assert len(with_exits) == len(plain) + 4
    assert WithExits(small) == WithExits(small)


class Endless(nn.Module):
    """Has no units."""

    def features(self, images: Tensor) -> Tensor:
        return images.flatten(1)


def test_a_network_that_cannot_end_early_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        WithExits(Endless)()
    message = str(caught.value)
    assert message.startswith("Endless cannot end early; it has to offer units()")
    assert "\n" not in message
