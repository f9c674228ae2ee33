"""The real models of the zoo, translated: outputs in eval mode, gradients in train mode, beside plain PyTorch.

    python benchmarks/zoo.py                                  all of them, in both modes
    python benchmarks/zoo.py --modes eval --filter '^plain/'  some

Every finished case is a line of JSON in ``--folder``; what is there is not run again, so a run that was stopped goes
on where it was. The table of all that is there goes to ``--out``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import torch
from common import Row, markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

HERE = Path(__file__).resolve().parent
MODES = ("eval", "train")


def selected(zoo: Path, pattern: str) -> list[str]:
    return [line for line in (zoo / "cases.txt").read_text().split() if re.search(pattern, line)]


def results(path: Path) -> dict[str, Row]:
    """What is finished, by case; the last line of a run that was killed may be half a line."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[f"{row['package']}/{row['case']}"] = row
    return found


def run(zoo: Path, mode: str, pattern: str, path: Path, progress: Progress) -> None:
    """Run what is missing, in a process of its own, and show how far it is."""
    cases = selected(zoo, pattern)
    task = progress.add_task(mode, total=len(cases))
    command = [sys.executable, "zoo.py", "--cases", "cases.txt", "--translator", "sot_eager", "--mode", mode,
               "--filter", pattern, "--warm-budget", "0.2", "--out", str(path)]
    with open(path.with_suffix(".log"), "a") as log:
        process = subprocess.Popen(command, cwd=zoo, stdout=log, stderr=subprocess.STDOUT)
    try:
        while process.poll() is None:
            progress.update(task, completed=len(results(path).keys() & set(cases)))
            time.sleep(1)
    finally:
        process.terminate()
        process.wait()
    progress.update(task, completed=len(results(path).keys() & set(cases)))
    if process.returncode:
        raise SystemExit(f"the zoo stopped with status {process.returncode}: see {path.with_suffix('.log')}")


# ---- what came of it ----
def is_right(row: Row) -> bool:
    """Outputs, and in train mode gradients, are those of plain PyTorch; a case that differs from itself passes."""
    same = row.get("allclose") and row.get("grads_ok", True)
    return bool(row.get("translated_ok") and (same or not row.get("deterministic")))


def is_captured_again(row: Row) -> bool:
    return (row.get("graphs_after_warm") or 0) > (row.get("graphs") or 0)


def summary(package: str, mode: str, rows: list[Row]) -> Row:
    plain = [row for row in rows if row.get("eager_ok")]
    first = [row["first_s"] for row in plain if "first_s" in row]
    warm = [row["warm_ratio"] for row in plain if "warm_ratio" in row]
    return {"set": package, "mode": mode, "tried": len(rows), "run plainly": len(plain),
            "right": sum(map(is_right, plain)), "one graph": sum(is_right(row) and row["graphs"] == 1 for row in plain),
            "captured again": sum(map(is_captured_again, plain)),
            "first call, median s": statistics.median(first) if first else None,
            "warm / plain, median": statistics.median(warm) if warm else None}


def table(folder: Path) -> tuple[list[Row], list[str]]:
    """A row a set and mode, one for all sets, and a line for each case that is not as it should be."""
    rows: list[Row] = []
    notes = []
    for mode in MODES:
        sets: dict[str, list[Row]] = defaultdict(list)
        for case, row in sorted(results(folder / f"{mode}.jsonl").items()):
            sets[row["package"]].append(row)
            if not row.get("eager_ok"):
                notes.append(f"{mode} {case}: not run plainly: {str(row.get('error'))[:160]}")
            elif not is_right(row):
                why = row.get("mismatch") or row.get("grad_bad") or row.get("error")
                notes.append(f"{mode} {case}: {str(why)[:160]}")
            elif is_captured_again(row):
                notes.append(f"{mode} {case}: {row['graphs']} graphs, {row['graphs_after_warm']} after more calls")
        rows += [summary(package, mode, found) for package, found in sets.items()]
        if sets:
            rows.append(summary("all", mode, [row for found in sets.values() for row in found]))
    return rows, notes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, default=HERE.parent.parent / "shared" / "zoo", help="folder of zoo.py")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--filter", default=".", help="a regular expression over package/name")
    parser.add_argument("--folder", type=Path, default=HERE.parent / "build" / "zoo", help="of the finished cases")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if not (options.zoo / "zoo.py").exists():
        parser.error(f"no zoo.py in {options.zoo}: give its folder with --zoo, or ZOO=... to make")
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description:6}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        for mode in options.modes:
            run(options.zoo, mode, options.filter, folder / f"{mode}.jsonl", progress)
    rows, notes = table(folder)
    date = datetime.date.today().isoformat()
    page = [f"# Real models, {date}", f"torch {torch.__version__}, python {sys.version.split()[0]}, backend: the "
            "graph's own forward", markdown(rows), "\n".join(f"- {note}" for note in notes)]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{date}-real-models.md").write_text("\n\n".join(part for part in page if part) + "\n")
    print(markdown(rows))
    print("\n".join(notes))


if __name__ == "__main__":
    main()
