"""torch's database of operators through the Triton backend, in Triton's interpreter: results, gradients, changes of
arguments and later random numbers, beside eager.

    python benchmarks/kernels/every_operator.py --kept build/every_operator.jsonl [NAME...]

Each operator is called with its first samples. What is finished is a line of the file, so a run that was stopped goes
on. The table counts operators by what became of them.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]
os.environ["TRITON_INTERPRET"] = "1"

import torch
from common import Row, markdown
from op_db import Entry, differs, function_of, operators, outcome

import sot
from sot.backends.triton.compiler import Compiler

WORST = ("differs", "raises", "falls back", "not captured", "called", "kernels", "not deterministic", "not run")


def verdict(entry: Entry) -> Row:
    """What became of one call. The first word is one of WORST."""
    try:
        wanted, again = (outcome(function_of(entry.fn), entry) for _ in range(2))
    except Exception as error:
        return {"what": "not run", "why": type(error).__name__}
    if differs(again, wanted):
        return {"what": "not deterministic"}
    made = Compiler("cpu", interpreted=True)
    try:
        got = outcome(sot.to_static(function_of(entry.fn), backend=made), entry)
    except Exception as error:
        return {"what": "raises", "why": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        sot.reset()
    if why := differs(got, wanted):
        return {"what": "differs", "why": why}
    if made.failed:
        return {"what": "falls back", "why": made.failed[0][:200]}
    if not made.made:
        return {"what": "not captured"}
    titles = {one.title for one in made.made if one.cost.kernels}
    return {"what": "kernels" if titles else "called", "backward": "backward" in titles}


def summary(rows: Iterable[Row]) -> list[Row]:
    """An operator counts as the worst of its samples, except that one with kernels has them."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["name"]].append(row)
    counts: Counter[str] = Counter()
    for mine in found.values():
        kinds = {row["what"] for row in mine}
        what = next(w for w in WORST if w in kinds)
        counts["kernels" if what == "called" and "kernels" in kinds else what] += 1
    counts["kernels in a backward graph"] = sum(any(r.get("backward") for r in mine) for mine in found.values())
    return [{"operators": what, "count": n} for what, n in [("all", len(found)), *counts.most_common()]]


def kept(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operators; without any, all")
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "every_operator.jsonl")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--samples", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)    # fills the memory that ``empty`` and its kin return
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    done, end, numbers = {(r["name"], r["sample"]) for r in kept(options.kept)}, time.monotonic(), Counter[str]()
    end += 60 * options.minutes
    with options.kept.open("a") as file:
        for entry in operators():
            numbers[entry.name] += 1
            key: tuple[str, Any] = entry.name, numbers[entry.name]
            if key in done or key[1] > options.samples or options.names and entry.name not in options.names:
                continue
            if time.monotonic() > end:
                break
            file.write(json.dumps({"name": key[0], "sample": key[1], **verdict(entry)}) + "\n")
            file.flush()
    rows = kept(options.kept)
    print(markdown(summary(rows)))
    for row in rows:
        if row["what"] in WORST[:4]:
            print(row)


if __name__ == "__main__":
    main()
