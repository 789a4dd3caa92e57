import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from framp.engines.allocator import give_back_freed_memory, keep_freed_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(1 << 21)  # 8 MiB: 2048 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "kept":
    keep_freed_memory()
faults(40)  # until the heap has a place for a block, whatever lay around in it
print(faults(20))
give_back_freed_memory()
print(faults(1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone can be told")
@pytest.mark.parametrize("kept", [True, False])
def test_freed_memory_is_kept_for_the_next_step_until_it_is_given_back(kept: bool) -> None:
    script = [sys.executable, "-c", FAULTS, "kept" if kept else "as ever"]
    # glibc would adapt one that is not set to what is freed
    environment = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60, check=True)
    again, after = map(int, done.stdout.split())
    assert again <= 200 if kept else again >= 20 * 2048
    assert after > 1000
