import pytest
import torch

from framp.threads import one_thread


def test_one_thread_and_then_as_many_as_before() -> None:
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            with one_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        with pytest.raises(ZeroDivisionError), one_thread():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
