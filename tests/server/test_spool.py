import resource
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.errors import FrampError
from framp.server.spool import InMemory, OnDisk, Spool

DTYPES = [torch.float32, torch.float64, torch.int32]


def vector(length: int, dtype: torch.dtype, seed: int) -> Tensor:
    values = torch.randint(-(2**31), 2**31 - 1, (length,), generator=torch.Generator().manual_seed(seed))
    return values.to(dtype) if dtype == torch.int32 else (values / 1e9).to(dtype)


@given(st.data(), st.integers(0, 300))
def test_memory_and_disk_give_the_same_bits(data: st.DataObject, memory: int) -> None:
    lengths = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=6), "lengths")
    tensors = [vector(length, data.draw(st.sampled_from(DTYPES)), number) for number, length in enumerate(lengths)]
    with closing(Spool(memory)) as spool:
        kept = [spool.keep(tensor) for tensor in tensors]
        assert [len(stored) for stored in kept] == lengths
        for _ in range(8):  # ranges of all of them in any order
            number = data.draw(st.integers(0, len(tensors) - 1))
            start = data.draw(st.integers(0, len(tensors[number])))
            stop = data.draw(st.integers(start, len(tensors[number])))
            found = kept[number].read(start, stop)
            assert found.dtype == tensors[number].dtype
            assert torch.equal(found, tensors[number][start:stop])


def test_what_fits_stays_in_memory_and_the_rest_goes_to_disk() -> None:
    spool = Spool(40)
    kept = [spool.keep(torch.ones(length)) for length in (5, 6, 5, 1)]  # 20, 24, 20, 4 bytes
    assert [type(stored) for stored in kept] == [InMemory, OnDisk, InMemory, OnDisk]
    spool.close()


def test_what_is_on_disk_is_gone_when_the_spool_is_closed() -> None:
    spool = Spool(0)
    kept = spool.keep(torch.ones(3))
    assert kept.read(1, 3).tolist() == [1, 1]
    spool.close()
    with pytest.raises(ValueError, match="closed file"):
        kept.read(0, 1)
    Spool(10).close()


def test_reading_between_two_tensors_does_not_misplace_the_second() -> None:
    with closing(Spool(0)) as spool:
        first = spool.keep(torch.tensor([1.0, 2.0, 3.0]))
        assert first.read(0, 1).tolist() == [1]
        second = spool.keep(torch.tensor([4.0, 5.0]))
        assert first.read(0, 3).tolist() == [1, 2, 3]
        assert second.read(0, 2).tolist() == [4, 5]


def test_strided_and_special_values_survive_the_disk() -> None:
    spool = Spool(0)
    strided = torch.tensor([[1.0, 9.0], [-0.0, 9.0], [float("inf"), 9.0], [1e-45, 9.0]])[:, 0]
    found = spool.keep(strided).read(0, 4)
    assert torch.equal(found.view(torch.int32), strided.contiguous().view(torch.int32))
    spool.close()


def test_a_temporary_folder_that_takes_no_more_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    spool = Spool(0)
    try:
        kept = spool.keep(torch.ones(200))
        with pytest.raises(FrampError) as caught:
            spool.keep(torch.ones(200))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for words in (f"temporary folder {tmp_path}: File too large;", "TMPDIR", "engine.inbox_bytes", "framp resume DIR"):
        assert words in str(caught.value)
    assert kept.read(0, 200).sum() == 200
    spool.close()
