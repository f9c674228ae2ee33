"""``make fuzz N=20000 SEED=1``: compare that many random programs with plain Python, in parallel processes.

Each process takes a share of the programs, with a seed of its own that is printed with every program that differs.
Such a program is made small and printed as a file that can be run.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sot.frontend.api import TargetError

from . import differ
from .shrinking import shrink
from .strategies import each_program

SHARE = 250     # programs a process
MEMORY = 6 << 30
RUNNABLE = '''
import sys

sys.path[:0] = ["tests", "tests/support"]
from fuzzing.differ import compare

compare("""{}""", backend={!r})
'''


def work(count: int, seed: int, last: Path, backend: str) -> dict:
    """Run one share; what comes back is data. ``last`` has the program that is running, in case the process dies."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []

    def one(source: str) -> None:
        last.write_text(source)
        counts["programs"] += 1
        try:
            differ.compare(source, counts, backend)
        except SyntaxError:
            counts["not a program"] += 1
        except TargetError:     # a generator that cannot be left
            counts["refused"] += 1
        except differ.Endless:
            counts["endless"] += 1
        except differ.Unsteady:
            counts["plain runs differ"] += 1
        except differ.Difference as e:
            failures.append((source, str(e)))

    each_program(count, seed, one)
    return {"counts": counts, "failures": [small(*failure, backend) for failure in failures]}


def small(source: str, message: str, backend: str) -> tuple[str, str]:
    shrunk = shrink(source, lambda s: differ.differs(s, backend) is not None)
    return shrunk, differ.differs(shrunk, backend) or f"(only once) {message}"


def run_share(share: int, seed: int, count: int, backend: str) -> tuple[Counter[str], int]:
    """One process; print what it found."""
    with tempfile.TemporaryDirectory() as folder:
        last = Path(folder, "last.py")
        command = [sys.executable, "-W", "ignore", "-m", "fuzzing", str(count), "--seed", str(seed)]
        command += ["--backend", backend, "--share", str(last)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=7200)
        if done.returncode:
            print(f"# seed {seed}: the process ended with {done.returncode}\n{done.stderr[-2000:]}\n{last.read_text()}")
            return Counter({"crashed": 1}), 1
    found = json.loads(done.stdout.splitlines()[-1])
    for source, message in found["failures"]:
        comment = "".join(f"# {line[:400]}\n" for line in message.splitlines())
        print(f"# seed {seed}\n{comment}{RUNNABLE.format(source.replace(chr(92), chr(92) * 2), backend)}", flush=True)
    print(f"{share}: {len(found['failures'])} differ", file=sys.stderr, flush=True)
    return Counter(found["counts"]), len(found["failures"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzzing", description=__doc__)
    parser.add_argument("count", type=int, help="how many programs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--backend", choices=differ.BACKENDS, default="eager")
    parser.add_argument("--share", type=Path, help="be one of the processes; the file for the running program")
    args = parser.parse_args()
    if args.share:
        with os.fdopen(os.dup(1), "w") as answer:       # a program may close, or exchange, sys.stdout
            answer.write(json.dumps(work(args.count, args.seed, args.share, args.backend)))
        return 0
    shares = [(i, args.seed * 100_000 + i, min(SHARE, args.count - i * SHARE)) for i in range(-(-args.count // SHARE))]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = [*pool.map(lambda share: run_share(*share, args.backend), shares)]
    counts = sum((found for found, _ in results), Counter())
    different = sum(n for _, n in results)
    print(f"seed {args.seed}: {counts['programs']} programs, {different} differ")
    print("\n".join(f"{n:8} {name}" for name, n in counts.most_common()))
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
