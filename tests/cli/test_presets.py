from pathlib import Path

import pytest

from framp import presets
from framp.errors import ConfigError


def test_the_presets_of_the_package() -> None:
    assert presets.names() == ["arxiv", "cifar10", "cifar10-small", "cifar100", "cora", "digits", "sbm"]
    for name in presets.names():
        assert presets.load(name).name == name
        assert presets.purpose(name)


@pytest.mark.parametrize(("name", "rate", "column"), [("cifar10", 0.12, "label"), ("cifar100", 0.08, "fine_label")])
def test_the_paper_presets(name: str, rate: float, column: str) -> None:
    config = presets.load(name)
    assert (config.model.name, config.model.width, config.model.norm) == ("resnet18", 64, "batch")
    assert (config.partition.clients, config.federation.participants, config.rounds) == (100, 10, 800)
    assert (config.training.steps, config.training.batch, config.training.rate) == (100, 32, 0.1)
    assert (config.partition.alpha, config.partition.test) == (0.3, "independent")
    assert config.federation.budgets == ["1/64", "1/16", "1/4", "1"]
    assert (config.generation.personal_rate, config.alignment.weight, config.generation.hidden) == (rate, 0.7, 64)
    assert (config.data.path, config.data.label_column, config.data.augment) == (f"uoft-cs/{name}", column, True)


def test_the_papers_preset_of_graphs() -> None:
    config = presets.load("arxiv")
    assert (config.data.source, config.partition.kind, config.partition.train_share) == ("arxiv", "metis", 0.4)
    assert (config.model.name, config.model.layers, config.model.hidden) == ("gcn", 4, 128)
    assert (config.partition.clients, config.federation.participants, config.rounds) == (100, 10, 200)
    assert (config.training.steps, config.training.rate) == (120, 0.1)
    assert (config.generation.personal_rate, config.generation.shared_rate, config.alignment.weight) == (0.1, 0.1, 0.2)
    assert (presets.load("cora").data.source, presets.load("cora").partition.clients) == ("planetoid", 20)


def test_a_path_is_a_preset_as_well(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("rounds = 3\n")
    assert (presets.load(str(file)).name, presets.load(str(file)).rounds) == ("mine", 3)
    file.write_text('name = "given"\n')
    assert presets.load(str(file)).name == "given"
    with pytest.raises(ConfigError, match="did you mean 'cifar10-small'"):
        presets.load("cifar10-smal")
