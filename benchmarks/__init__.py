"""Speed and memory, as ratios inside one run. `python -m benchmarks` runs all of it."""
