import pytest
import torch

from framp.layout import Entry
from framp.stage1_generation.cuts import Cut, cuts

ENTRIES = (Entry("a", (3, 2, 3), 0), Entry("b", (4,), 18), Entry("c", (2, 7), 22), Entry("d", (), 36))


def test_cuts_by_hand() -> None:
    """Rows of 6, of 1 (a vector), of 7 in parts of 4, and a scalar; a code has 2 numbers."""
    found = cuts(ENTRIES, block=6, latent=2)
    assert found == [
        Cut(0, 18, 6, 2, codes_from=0, basis_from=0),
        Cut(18, 22, 1, 1, codes_from=6, basis_from=12),
        Cut(22, 36, 4, 2, codes_from=10, basis_from=12),
        Cut(36, 37, 1, 1, codes_from=18, basis_from=20),
    ]
    assert [cut.count for cut in found] == [3, 4, 4, 1]
    assert [cut.complete for cut in found] == [False, True, False, True]
    assert [cut.codes for cut in found] == [slice(0, 6), slice(6, 10), slice(10, 18), slice(18, 19)]
    assert [cut.basis for cut in found] == [slice(0, 12), slice(12, 12), slice(12, 20), slice(20, 20)]


@pytest.mark.parametrize(("block", "length"), [(1, 1), (2, 2), (3, 3), (4, 4), (6, 4), (7, 7), (100, 7)])
def test_a_long_row_is_cut_into_as_few_parts_as_fit(block: int, length: int) -> None:
    """A row of 7: 7 parts of 1, 4 of up to 2, 3 of up to 3, 2 of up to 4, or one."""
    (found,) = cuts([Entry("c", (2, 7), 0)], block, latent=1)
    assert found.length == length
    assert (found.count - 1) * length < 14 <= found.count * length


def test_an_empty_tensor_has_no_blocks() -> None:
    assert [cut.count for cut in cuts([Entry("a", (0, 3), 0), Entry("b", (3, 0), 0)], 4, 2)] == [0, 0]


def test_codes_are_added_by_hand() -> None:
    """Five entries in blocks of 2; a code of one number stands for (1, 10) times it."""
    cut = Cut(1, 6, length=2, latent=1, codes_from=0, basis_from=3)
    vector = torch.zeros(7)
    cut.add(vector, torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0.0, 0, 0, 1, 10]))
    assert vector.tolist() == [0, 1, 10, 2, 20, 3, 0]
    own = Cut(0, 5, length=2, latent=2, codes_from=0, basis_from=0)
    own.add(vector, torch.tensor([[1.0, 2], [3, 4], [5, 6]]), torch.empty(0))
    assert vector.tolist() == [1, 3, 13, 6, 25, 3, 0]


def test_changes_are_spread_by_hand() -> None:
    """Two participants' changes of the entries 3, 4 and 8 of a tensor in blocks of 3: they lie in blocks 1 and 2."""
    cut = Cut(100, 112, length=3, latent=2, codes_from=10, basis_from=0)
    changes = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    rows, found = cut.spread(torch.tensor([3, 4, 8]), changes)
    assert rows == slice(12, 16)
    assert found.tolist() == [[[1, 2, 0], [0, 0, 3]], [[4, 5, 0], [0, 0, 6]]]
    rows, found = cut.spread(slice(5, 8), changes)
    assert rows == slice(12, 16)
    assert found.tolist() == [[[0, 0, 1], [2, 3, 0]], [[0, 0, 4], [5, 6, 0]]]
