"""Whole programs, plainly and translated, in turns: ``python benchmarks/programs.py [NAME...] [--how enable,static]``.

``enable`` runs a program unchanged with SOT_ENABLE=1, ``static`` with to_static around its model. The programs are
those of ../shared/scripts/programs, which need its packages, or of another folder (``--programs``). A process of its
own for each sample; figures are CPU seconds of the whole process, and ``total`` is their ratio to the plain run's. A
settled step is the lower quartile of the second half of a program's steps, beside the one of the plain run that takes
turns with it, step by step (stepwise/harness.py). Each figure is the median of ``--turns``.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2] / "shared" / "scripts"
HOW = ("enable", "static")
UNCOMPILED = "PYTHONDONTWRITEBYTECODE"  # with it each process compiles this package, which an install does once
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def sample(program: Path, modes: list[str], scripts: Path) -> list[dict[str, Any]]:
    """A run of each mode, all at once and by turns: what the harness has written, and the CPU seconds."""
    pipes = [os.pipe() for _ in modes]
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for i, mode in enumerate(modes):
            turns = pipes[i - 1][0], pipes[i][1]
            place = Path(folder) / str(i)
            (place / "work").mkdir(parents=True)
            errors = (place / "errors").open("w")
            processes.append(subprocess.Popen(
                [sys.executable, str(program)], env=environment(mode, scripts, place, [i, *turns]), cwd=place,
                stdout=subprocess.DEVNULL, stderr=errors, pass_fds=turns))
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)
        return [result(process, f"{program.stem} ({mode})", Path(folder) / str(i))
                for i, (mode, process) in enumerate(zip(modes, processes, strict=True))]


def environment(mode: str, scripts: Path, place: Path, turns: list[int]) -> dict[str, str]:
    """The environment variables of a run in the folder ``place``. ``turns`` is for stepwise/harness.py."""
    paths = [Path(__file__).parent / "stepwise", scripts, scripts.parent / "zoo", os.environ.get("PYTHONPATH", "")]
    own = {"HARNESS_MODE": mode, "HARNESS_OUT": str(place / "out.json"), "HARNESS_FILE": str(scripts / "harness.py"),
           "HARNESS_TURNS": ",".join(map(str, turns)), "SOT_EXCLUDE": "harness,tvshim",
           "PYTHONPATH": os.pathsep.join(map(str, paths))}
    inherited = {name: value for name, value in os.environ.items() if name != UNCOMPILED}
    return {**inherited, **QUIET, **own, **({"SOT_ENABLE": "1"} if mode == "enable" else {})}


def result(process: subprocess.Popen[bytes], name: str, place: Path) -> dict[str, Any]:
    """The figures of a run when it has ended."""
    _, status, usage = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{name} failed ({code}):\n{(place / 'errors').read_text()[-2000:]}")
    return {**json.loads((place / "out.json").read_text()), "cpu": usage.ru_utime + usage.ru_stime}


def settled(steps: list[float]) -> float:
    half = sorted(steps[len(steps) // 2:])
    return half[len(half) // 4]


def measure(program: Path, how: list[str], turns: int, scripts: Path) -> dict[str, Any]:
    """The figures of one program: of plain runs, and of each way of translation beside them."""
    samples = [sample(program, ["plain", *how], scripts) for _ in range(turns)]
    plain, *translated = ([*runs] for runs in zip(*samples, strict=True))
    return {"plain": cpu_seconds(plain)} | {
        mode: compare(plain, runs) for mode, runs in zip(how, translated, strict=True)}


def compare(plain: list[dict[str, Any]], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of translated runs beside those of plain ones."""
    captures = runs[0]["captures"]
    pairs = [*zip(runs, plain, strict=True)]
    steps = [settled(run["steps"]) / settled(other["steps"]) for run, other in pairs]
    totals = [run["cpu"] / other["cpu"] for run, other in pairs]
    return {
        "same": all((run["values"], run["extra"]) == (plain[0]["values"], plain[0]["extra"]) for run in runs),
        "seconds": cpu_seconds(runs),
        "total": round(statistics.median(totals), 3),
        "step": round(statistics.median(steps), 3),
        "steps": [round(step, 3) for step in steps],
        "captures": {"first step": captures[0], "half": captures[len(captures) // 2], "end": captures[-1]},
    }


def cpu_seconds(runs: list[dict[str, Any]]) -> float:
    return round(statistics.median(run["cpu"] for run in runs), 2)


def programs_in(folder: Path, names: list[str]) -> list[Path]:
    """The programs of these names, or all. Exits with a message if there is none of a name."""
    found = {path.stem: path for path in sorted(folder.glob("*.py"))}
    if not found:
        raise SystemExit(f"there are no programs: {folder}/*.py matches no file (--scripts or --programs names another "
                         "folder)")
    if unknown := [name for name in names if name not in found]:
        raise SystemExit(f"{folder} has no program {', '.join(unknown)}; it has {', '.join(found)}")
    return [found[name] for name in names or found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--how", type=lambda text: text.split(","), default=["enable"], help=",".join(HOW))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--scripts", type=Path, default=SCRIPTS, help="the folder of harness.py")
    parser.add_argument("--programs", type=Path, help="the folder of the programs; SCRIPTS/programs by default")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if unknown := set(options.how) - set(HOW):
        parser.error(f"--how {','.join(unknown)}: it is one or more of {', '.join(HOW)}")
    os.sched_setaffinity(0, [*os.sched_getaffinity(0)][-1:])     # processes that take turns share one core
    rows = {}
    for program in programs_in(options.programs or options.scripts / "programs", options.names):
        row = rows[program.stem] = measure(program, options.how, options.turns, options.scripts)
        for mode in options.how:
            found = row[mode]
            print(f"{program.stem:16} {mode:6} {'same' if found['same'] else 'NOT THE SAME'}  "
                  f"plain {row['plain']:.1f} s, translated {found['seconds']:.1f} s ({found['total']:.2f}), "
                  f"settled step {found['step']:.2f}, captures {[*found['captures'].values()]}", flush=True)
        if options.out:
            options.out.write_text(json.dumps({"turns": options.turns, "programs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
