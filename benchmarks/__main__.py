"""Run all benchmarks, or those named: python -m benchmarks [rounds] [rivals] [server] [execution] [wire] …."""

import sys

from rich.console import Console
from rich.table import Table

from benchmarks import (
    cost,
    execution,
    graphs,
    memory,
    partitions,
    rivals,
    rounds,
    server_stages,
    server_step,
    wire,
    work,
)

ALL = {
    "rounds": rounds.figures,
    "rivals": rivals.figures,
    "server": server_step.figures,
    "stages": server_stages.figures,
    "execution": execution.figures,
    "cost": cost.figures,
    "memory": memory.figures,
    "work": work.figures,
    "partitions": partitions.figures,
    "graphs": graphs.figures,
    "wire": wire.figures,
}


def main() -> int:
    """Measure, print a table, and return 1 if a bar is missed."""
    unknown = set(sys.argv[1:]) - set(ALL)
    if unknown:
        print(f"error: no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    table = Table("figure", "measured", "bar", "", "detail")
    missed = 0
    for name in sys.argv[1:] or ALL:
        for figure in ALL[name]():
            table.add_row(
                figure.name, f"{figure.value:.2f}", f"≤ {figure.bar:g}", "✓" if figure.reached else "✗", figure.detail
            )
            missed += not figure.reached
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
