"""What the README says of accuracy, on data that come with the project."""

import pytest

from framp import presets
from framp.federation import Federation


def local(recipe: str, seed: int) -> float:
    config = presets.load("digits").with_values({"recipe": recipe, "seed": seed})
    with Federation.from_config(config) as federation:
        for _ in federation.train(config.rounds):
            pass
        return federation.evaluate().local


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_framp_is_well_above_fiarse_on_digits(seed: int) -> None:
    assert local("framp", seed) > local("fiarse", seed) + 0.03
