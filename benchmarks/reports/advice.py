"""The first advice of reports on programs that were not written here: what it says, and what following it wins.

    python benchmarks/reports/advice.py

Each program runs as it is, and with the change that the advice of its report asks for. A program's results must stay
the same, and the loss that the advice is about must be gone.
"""
from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from common import Row, markdown

from sot.reports.advice import Loss, first_change, losses
from sot.reports.lines import milliseconds
from sot.reports.model import Report, load

RUNS = 3


def into_function(program: str) -> str:
    """The program with its loop at module level, from ``envs`` to the last line but one, in a function."""
    head, loop = program.split("envs = Envs()")
    *body, last = f"envs = Envs(){loop}".rstrip().splitlines()
    return "\n".join((head, "def main():", *(f"    {line}" for line in body), "main()", last, ""))


def marked(before: str) -> Callable[[str], str]:
    """The program with the batch marked before the text ``before``."""
    def change(program: str) -> str:
        assert program.count(before) == 1
        return "import sot\n" + program.replace(before, f"sot.mark_dynamic(data, 0); {before}")
    return change


CHANGES = {"vae": marked("optimizer.zero_grad(); rb, mu"), "mnist": marked("output = model(data)\n        loss = F"),
           "ppo": into_function}


@dataclass
class Run:
    """``seconds``: CPU time of the process and its children."""

    report: Report
    results: object
    seconds: float


def run(scripts: Path, program: str, folder: Path) -> Run:
    """The run with the least time of several, because other load only adds."""
    path, report, results = folder / "program.py", folder / "report.json", folder / "results.json"
    path.write_text(program)
    environment = os.environ | {"HARNESS_MODE": "plain", "HARNESS_OUT": str(results), "PYTHONPATH": str(scripts)}
    command = [sys.executable, "-m", "sot", "explain", "--backend", "eager", "--report", str(report), str(path)]
    runs = []
    for _ in range(RUNS):
        start = cpu_seconds()
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=600)
        found = json.loads(results.read_text())
        runs.append(Run(load(report), (found["values"], found["extra"]), cpu_seconds() - start))
    return min(runs, key=lambda run: run.seconds)


def cpu_seconds() -> float:
    """CPU time of all processes that this one has started and waited for."""
    times = os.times()
    return times.children_user + times.children_system


def subject(loss: Loss) -> tuple[str, str]:
    """What a loss is about, in a program whose lines may have moved."""
    return loss.remedy, loss.line.source.strip()


def compared(name: str, before: Run, after: Run) -> Row:
    first, left = first_change(before.report), losses(after.report)
    assert first is not None and before.results == after.results, name
    assert all(subject(loss) != subject(first) for loss in left), f"{name}: the loss is still there"
    return {"program": name, "first advice": f"{first.what.partition(' (needed')[0]}. {first.remedy}",
            "its loss": milliseconds(first.seconds), "CPU time before": milliseconds(before.seconds),
            "after": milliseconds(after.seconds), "recompiles": f"{len(before.report.recompiles)}, then "
            f"{len(after.report.recompiles)}", "next advice": left[0].what.partition(": expected")[0] if left else ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=Path, default=ROOT.parent / "shared" / "scripts", help="folder of harness.py")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    rows = []
    for name, change in CHANGES.items():
        program = (options.scripts / "programs" / f"{name}.py").read_text()
        with tempfile.TemporaryDirectory() as folder:
            before = run(options.scripts.resolve(), program, Path(folder))
            rows.append(compared(name, before, run(options.scripts.resolve(), change(program), Path(folder))))
        print(rows[-1], flush=True)
    date = datetime.date.today().isoformat()
    (options.out / f"{date}-report-advice.md").write_text(
        f"# The first advice of reports, {date}\n\nThe least CPU time of {RUNS} runs of `sot explain`, with its "
        f"captures. Results are the same before and after, and no loss of the changed program is the one that the "
        f"advice was about.\n\n"
        f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
