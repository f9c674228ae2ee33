"""Whole programs, unchanged, with SOT_ENABLE=1 and plainly, in turns: ``python benchmarks/programs.py [NAME...]``.

The programs are those of ../shared/scripts/programs, which need its packages. A process of its own for each sample; the
figures are CPU seconds of the whole process, the median of ``--turns``. A settled step is the lower quartile of the
second half of a program's steps.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2] / "shared" / "scripts"
MODES = ("plain", "enable")
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def sample(program: Path, mode: str, scripts: Path) -> dict[str, Any]:
    """One run: what its harness has written, and the CPU seconds of its process."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        out = Path(folder) / "out.json"
        paths = [scripts, scripts.parent / "zoo", os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, **QUIET, "HARNESS_MODE": mode, "HARNESS_OUT": str(out), "SOT_EXCLUDE": "harness,tvshim",
               "PYTHONPATH": os.pathsep.join(map(str, paths))}
        env |= {"SOT_ENABLE": "1"} if mode == "enable" else {}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, str(program)], env=env, cwd=folder, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{program.stem} ({mode}) failed:\n{done.stderr[-2000:]}")
        return {**json.loads(out.read_text()),
                "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def settled(steps: list[float]) -> float:
    half = sorted(steps[len(steps) // 2:])
    return half[len(half) // 4]


def measure(program: Path, turns: int, scripts: Path) -> dict[str, Any]:
    """The figures of one program."""
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for _ in range(turns):
        for mode in MODES:
            found[mode].append(sample(program, mode, scripts))
    plain, enabled = found["plain"], found["enable"]
    captures = enabled[0]["captures"]
    step = {mode: statistics.median(settled(run["steps"]) for run in found[mode]) for mode in MODES}
    return {
        "same": all((run["values"], run["extra"]) == (plain[0]["values"], plain[0]["extra"]) for run in enabled),
        "plain": round(statistics.median(run["cpu"] for run in plain), 2),
        "enabled": round(statistics.median(run["cpu"] for run in enabled), 2),
        "step": round(step["enable"] / step["plain"], 3),
        "captures": {"first step": captures[0], "half": captures[len(captures) // 2], "end": captures[-1]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--scripts", type=Path, default=SCRIPTS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = {}
    for program in sorted((options.scripts / "programs").glob("*.py")):
        if not options.names or program.stem in options.names:
            row = rows[program.stem] = measure(program, options.turns, options.scripts)
            print(f"{program.stem:16} {'same' if row['same'] else 'NOT THE SAME'}  plain {row['plain']:.1f} s, enabled "
                  f"{row['enabled']:.1f} s, settled step {row['step']:.2f}, captures {row['captures']}", flush=True)
            if options.out:
                options.out.write_text(json.dumps({"turns": options.turns, "programs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
