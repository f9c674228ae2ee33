"""Programs without tensors in a process with SOT_ENABLE=1: what the variable costs where it has nothing to do.

The programs are those of plain_python.py. Each process runs all of them, and a plain process runs beside each with the
variable. The figures are CPU time in that of the plain process: of each program the least of all rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import Row, in_fresh_process, run_benchmark
from plain_python import PROGRAMS

ROUNDS = 6
LIMIT = 1.10


def child() -> Row:
    """One sample: the least CPU seconds of each program in this process."""
    found: Row = {}
    for name, program in PROGRAMS.items():
        rounds = []
        for _ in range(ROUNDS):
            start = time.process_time()
            program()
            rounds.append(time.process_time() - start)
        found[name] = min(rounds)
    return found


def measure(repeats: int) -> list[Row]:
    samples: dict[str, list[Row]] = {"": [], "1": []}
    for _ in range(repeats):
        for setting, taken in samples.items():
            taken.append(in_fresh_process(__file__, environment={"SOT_ENABLE": setting, "OMP_NUM_THREADS": "1"}))
    plain, enabled = ({name: min(row[name] for row in taken) for name in PROGRAMS} for taken in samples.values())
    ratios = {name: enabled[name] / plain[name] for name in PROGRAMS}
    ratios["all: geometric mean"] = statistics.geometric_mean(ratios.values())
    return [{"program": name, "measure": "CPU time in that of a plain process", "sot": ratio, "limit": LIMIT,
             "repeats": repeats} for name, ratio in ratios.items()]


if __name__ == "__main__":
    run_benchmark(__doc__, measure, child, repeats=3)
