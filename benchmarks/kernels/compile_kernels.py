"""Every kernel of torch's operators and of the programs that a GPU backend is measured by, compiled for GPUs offline.

    python benchmarks/kernels/compile_kernels.py --json benchmarks/results/kernels.json
    python benchmarks/kernels/compile_kernels.py --modules build/modules        those that zoo_graphs.py has written

No GPU is needed: kernels are made in a process of Triton's interpreter, and compiled for sm_80 and sm_90 in others.
Says how many there are, how many registers they take, which ones spill, how many load 16 bytes a thread at once, how
many compute places in 64 bits, and which do not compile.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "support")]
os.environ.setdefault("TRITON_INTERPRET", "1")

from common import Row, markdown
from gpu_programs import PROGRAMS
from offline_kernels import compiled, written
from operators import NAMES


def summary(rows: Sequence[dict[str, Any]]) -> list[Row]:
    found: list[Row] = []
    for arch in sorted({row["arch"] for row in rows}):
        mine = [row for row in rows if row["arch"] == arch]
        good = [row for row in mine if "failed" not in row]
        found.append({"arch": f"sm_{arch}", "kernels": len(mine), "compiled": len(good),
                      "spill": sum(row["spilled"] > 0 for row in good),
                      "most registers": max((row["registers"] for row in good), default=0),
                      "most shared bytes": max((row["shared"] for row in good), default=0),
                      "all loads 16 bytes": sum(0 < row["loads"] == row["wide loads"] for row in good),
                      "some": sum(0 < row["wide loads"] < row["loads"] for row in good),
                      "none": sum(row["wide loads"] == 0 < row["loads"] for row in good),
                      "64-bit indices": sum(row["64-bit index operations"] > 0 for row in good)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operators of op_db, programs of gpu_programs.py; without any, all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    parser.add_argument("--modules", type=Path, help="a folder of modules, instead of operators and programs")
    parser.add_argument("--json", type=Path, help="where to write a row for each kernel")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = sorted(options.modules.glob("*.py")) if options.modules else written(
            options.names or [*PROGRAMS, *NAMES], folder)
        print(f"{len(files)} modules in {time.perf_counter() - start:.0f} s", flush=True)
        rows = compiled(files, folder, options.jobs)
    print(markdown(summary(rows)))
    for row in rows:
        if row.get("failed") or row["spilled"]:
            print(row)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
