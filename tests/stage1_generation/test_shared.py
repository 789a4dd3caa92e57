import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.config import Config
from framp.layout import ParameterLayout
from framp.models import SmallCNN
from framp.server.spool import InMemory
from framp.stage1_generation import Shared, SharedWhereMoved
from framp.updates import MaskedUpdate


def update(client: int, maskable: int, changes: dict[int, float] | list[float], always: list[float]) -> MaskedUpdate:
    indices = list(changes) if isinstance(changes, dict) else None
    values = list(changes.values()) if isinstance(changes, dict) else changes
    return MaskedUpdate(
        client,
        maskable,
        None if indices is None else InMemory(torch.tensor(indices, dtype=torch.int32)),
        InMemory(torch.tensor(values, dtype=torch.float64)),
        torch.tensor(always, dtype=torch.float64),
        len(always),
    )


def take_over(backbone: Shared, state: dict[str, Tensor]) -> None:
    """Copy a state into a backbone's memory, as the server does."""
    for name, tensor in backbone.state().items():
        tensor.copy_(state[name])


def test_each_entry_moves_by_its_holders_mean() -> None:
    backbone = Shared(torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0], dtype=torch.float64))
    first = update(3, 4, {0: 2.0, 2: -3.0}, [1.0])
    second = update(5, 4, {2: 1.0}, [2.0])
    third = update(8, 4, {0: 4.0, 2: 8.0}, [6.0])
    assert backbone.learn([first, second, third]) == {}
    assert backbone.vector.tolist() == [1 + 3, 2, 3 + 2, 4, 10 + 3]


def test_a_whole_model_counts_as_a_holder_of_every_entry() -> None:
    backbone = Shared(torch.zeros(3, dtype=torch.float64))
    backbone.learn([update(0, 3, [3.0, 6.0, 9.0], []), update(1, 3, {1: 2.0}, [])])
    assert backbone.vector.tolist() == [3, 4, 9]


def test_a_change_of_zero_is_held_all_the_same() -> None:
    """A participant whose weight did not move is a holder, but FIARSE leaves it out of the mean."""
    for backbone, expected in (
        (Shared(torch.zeros(3, dtype=torch.float64)), [2, 0, 2]),
        (SharedWhereMoved(torch.zeros(3, dtype=torch.float64)), [4, 0, 4]),
    ):
        backbone.learn([update(0, 2, {0: 0.0, 1: 0.0}, [0.0]), update(1, 2, {0: 4.0, 1: 0.0}, [4.0])])
        assert backbone.vector.tolist() == expected


def test_a_rate_and_a_running_average_of_what_is_served() -> None:
    backbone = Shared(torch.tensor([0.0, 1.0], dtype=torch.float64), rate=2.0, served_average=0.1)
    backbone.learn([update(0, 1, [2.0], [1.0]), update(1, 1, [4.0], [0.0])])  # moves by 2·3 and 2·½
    backbone.learn([update(0, 1, [-3.0], [0.5])])
    assert backbone.generate(0).tolist() == [0, 3]
    # the second round weighs 2/3 beside the first round's 1/3: (6 + 2·0)/3, (2 + 2·3)/3
    for served in (backbone.serve(0), backbone.generate_union()):
        torch.testing.assert_close(served, torch.tensor([2, 8 / 3], dtype=torch.float64), atol=1e-15, rtol=0)
    other = Shared(torch.zeros(2, dtype=torch.float64), rate=2.0, served_average=0.1)
    take_over(other, backbone.state())
    backbone.learn([update(0, 1, [1.0], [0.5])])
    other.learn([update(0, 1, [1.0], [0.5])])
    assert other.serve(0).tolist() == backbone.serve(0).tolist()


@given(st.integers(1, 30), st.integers(1, 5), st.integers(0, 3), st.data())
def test_learning_is_the_transcribed_mean(maskable: int, participants: int, always: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    start = torch.randn(maskable + always, generator=generator, dtype=torch.float64)
    sets = data.draw(st.lists(st.sets(st.integers(0, maskable - 1)).map(sorted), min_size=participants, max_size=5))
    updates, changes = [], []
    for client, indices in enumerate(sets):
        values = torch.randn(len(indices), generator=generator, dtype=torch.float64).tolist()
        own = torch.randn(always, generator=generator, dtype=torch.float64).tolist()
        changes.append(dict(zip(indices, values, strict=True)) | {maskable + j: x for j, x in enumerate(own)})
        updates.append(update(client, maskable, dict(zip(indices, values, strict=True)), own))
    backbone = Shared(start.clone())
    backbone.learn(updates)
    for entry in range(maskable + always):
        held = [change[entry] for change in changes if entry in change]
        if held:
            assert abs(float(backbone.vector[entry]) - (float(start[entry]) + sum(held) / len(held))) < 1e-12
        else:
            assert torch.equal(backbone.vector[entry], start[entry])


def test_everybody_gets_the_same_model() -> None:
    layout = ParameterLayout.of(SmallCNN(1, 2, 2))
    initial = torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    backbone = Shared.configured(Config(), initial.clone(), layout, None)
    for generated in (backbone.generate(0), backbone.generate(7), backbone.serve(7), backbone.generate_union()):
        assert torch.equal(generated, initial)


def test_the_state_is_the_memory_itself_and_can_be_taken_over() -> None:
    backbone, other = Shared(torch.zeros(2, dtype=torch.float64)), Shared(torch.ones(2, dtype=torch.float64))
    state = backbone.state()
    backbone.learn([update(0, 1, {0: 3.0}, [4.0])])
    assert state["shared"].tolist() == [3, 4]
    take_over(other, state)
    backbone.learn([update(0, 1, {0: 3.0}, [4.0])])
    assert other.generate(0).tolist() == [3, 4]
    assert backbone.generate(0).tolist() == [6, 8]
