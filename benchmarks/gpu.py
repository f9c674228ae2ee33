"""Graphs compiled to Triton kernels on a GPU, beside eager PyTorch and torch.compile, in one run.

    python benchmarks/gpu.py --markdown benchmarks/results/GPU.md

Bandwidth: of kernels that only move memory (64 MB and more), as a share of a copy's on the device, and the times with
other block sizes. Speed: of whole models, inference, training and whole steps, as a ratio to eager (larger is faster),
and the seconds that the first three calls take, nothing being cached by either compiler. Our results are compared with
eager's before they are timed. What cannot run here (a model whose package is missing, a translator that fails) is a
cell that says so, and a traceback. A summary names the five worst ratios to torch.compile, with the kernels of both.

Each row is measured in a process of its own. `--jobs 14` starts so many at once: they compile side by side, and
measure one after another. What is measured is kept at once, in build/gpu.jsonl: a run that was stopped goes on.
`--only bandwidth` and the like measure a part, `--minutes 9` stops in time. `--dry-run` goes through all of it on the
CPU, small, with Triton's interpreter: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"      # first calls are to compile
os.environ["TRITON_INTERPRET"] = str(int("--dry-run" in sys.argv))

import torch
import triton
from common import Kept, Row, markdown
from on_gpu import memory_bound, models
from on_gpu.measuring import DRY, LOCK

MEASURES: dict[str, Callable[..., Row]] = {
    "copy": memory_bound.copy_bandwidth, "right": memory_bound.checked, "bandwidth": memory_bound.bandwidth,
    "block sizes": memory_bound.block_sizes, "speed": models.speed, "varying lengths": models.varying}
SEPARATOR = " | "


def keys() -> list[str]:
    """Everything that is measured, the most telling first."""
    made = [("copy",)]
    made += itertools.product(("right", "bandwidth"), memory_bound.CASES)
    for precision in models.PRECISIONS:
        for what in ("inference", "training step"):
            made += itertools.product(("speed",), models.CASES, (precision,), (what,), models.WAYS)
        if precision == "bf16":
            made += itertools.product(("speed",), models.WHOLE_STEPS, (precision,), ("whole step",),
                                      ("eager", *models.BOTH))
            made += itertools.product(("varying lengths",), ("Llama-style block",), models.BOTH)
            made += itertools.product(("block sizes",), memory_bound.CASES)
    return [SEPARATOR.join(parts) for parts in made]


def measured(key: str) -> Row:
    kind, *arguments = key.split(SEPARATOR)
    return MEASURES[kind](*arguments)


def in_fresh_process(key: str, lock: str) -> Row:
    """What ``measured(key)`` gives in a process of its own; raises the last line of its error."""
    done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--row", key], env=os.environ | {LOCK: lock},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"---- {key}\n{done.stderr[-3000:]}", flush=True)
        raise RuntimeError((done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure_all(kept: Kept, jobs: int) -> None:
    if DRY:
        for key in keys():
            kept(key, functools.partial(measured, key))
        return
    wanted = [key for key in keys() if kept.wants(key)]
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max((os.cpu_count() or 1) // jobs, 1)))
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(jobs) as pool:
        for at in range(0, len(wanted), jobs):      # who measures does not wait for those that come later
            wave = wanted[at:at + jobs]
            list(pool.map(lambda key: kept(key, functools.partial(in_fresh_process, key, lock.name)), wave))


# ---- tables ----
def failure(row: Row) -> str | None:
    return f"failed: {row['failed']}" if "failed" in row else None


def bandwidth_rows(kept: Kept) -> list[Row]:
    copy = kept.rows.get("copy", {}).get("GB/s", math.nan)
    rows: list[Row] = [{"what": "copy", "GB/s": copy}]
    for name in memory_bound.CASES:
        right, found = (kept.rows.get(f"{kind}{SEPARATOR}{name}", {}) for kind in ("right", "bandwidth"))
        if failed := failure(right) or failure(found):
            rows.append({"what": name, "which": failed})
            continue
        for which in ("forward", "backward"):
            if which in found:
                row = {"what": name, "which": which, "GB/s": found[which], "of a copy": found[which] / copy}
                theirs = found.get(f"torch.compile's {which}")
                rows.append(row | ({"of torch.compile's": found[which] / theirs} if theirs else {}))
    return rows


def block_rows(kept: Kept) -> list[Row]:
    return [{"what": name, "kernel": kernel, "chosen, ms": chosen, "fastest, ms": best, "share": best / chosen,
             "sizes": first, "fastest sizes": sizes}
            for name in memory_bound.CASES
            for kernel, (chosen, best, first, sizes) in kept.rows.get(f"block sizes{SEPARATOR}{name}", {}).items()
            if kernel != "failed"]


def speed_rows(kept: Kept) -> list[Row]:
    rows: dict[tuple[str, ...], Row] = {}
    for key in keys():
        kind, *rest = key.split(SEPARATOR)
        if kind != "speed":
            continue
        name, precision, what, way = rest
        row = rows.setdefault((name, precision, what), {"model": name, "type": precision, "what": what})
        found = kept.rows.get(key, {})
        if "ms" not in found:
            row |= {way: failure(found)} if found else {}
            continue
        if way == "eager":
            row["eager, ms"] = found["ms"]
        else:
            row[way] = row.get("eager, ms", math.nan) / found["ms"]
            row[f"{way} first, s"] = found["first"]
    return [row for row in rows.values() if len(row) > 3]


def device_rows(kept: Kept) -> list[Row]:
    """Device time, launches and memory of each model, ours beside theirs."""
    rows = []
    for name, precision, what in dict.fromkeys(tuple(k.split(SEPARATOR)[1:4]) for k in keys() if k.startswith("speed")):
        row: Row = {"model": name, "type": precision, "what": what}
        for way in ("eager", *models.BOTH):
            found = kept.rows.get(SEPARATOR.join(("speed", name, precision, what, way)), {})
            row |= {f"{way} {key}": found.get(key) for key in ("device, ms", "launches", "peak, MB")}
        rows.append(row)
    return [row for row in rows if any(v is not None for k, v in row.items() if k not in ("model", "type", "what"))]


def varying_rows(kept: Kept) -> list[Row]:
    known = {way: kept.rows.get(SEPARATOR.join(("varying lengths", "Llama-style block", way))) for way in models.BOTH}
    return [{"with": way, **{f"{k}, s" if k != "ms" else k: v for k, v in found.items()}}
            for way, found in known.items() if found]


def worst(kept: Kept, number: int = 5) -> str:
    """The rows in which we are slowest beside torch.compile, with the kernels that take longest in each."""
    ratios = {}
    for key, ours in kept.rows.items():
        if key.startswith("speed") and key.endswith(f"{SEPARATOR}sot") and "ms" in ours:
            theirs = kept.rows.get(key.removesuffix("sot") + "torch.compile", {})
            if "ms" in theirs:
                ratios[key] = ours["ms"] / theirs["ms"]
    parts = []
    for key in sorted(ratios, key=lambda key: -ratios[key])[:number]:
        parts.append(f"{key.removeprefix('speed | ')}: {ratios[key]:.2f} of torch.compile's time")
        for who in models.BOTH:
            row = kept.rows[key.removesuffix("sot") + who]
            parts += [f"    {who:14} {ms:8.3f} ms {count:5} x {name}" for name, count, ms in row.get("kernels", ())]
    return "\n".join(parts)


def geometric_mean(rows: list[Row], way: str) -> float:
    found = [math.log(r[way]) for r in rows if isinstance(r.get(way), float)]
    return math.exp(statistics.fmean(found)) if found else math.nan


def compile_share(rows: list[Row]) -> float:
    """Our first calls beside those of torch.compile."""
    ours, theirs = "sot first, s", "torch.compile first, s"
    shares = [math.log(r[ours] / r[theirs]) for r in rows if ours in r and theirs in r]
    return math.exp(statistics.fmean(shares)) if shares else math.nan


BY_HAND = "## How this is measured"       # what follows this heading in a file of results stays


def written(kept: Kept) -> str:
    speeds = speed_rows(kept)
    means = ", ".join(f"{way} {geometric_mean(speeds, way):.2f}" for way in list(models.WAYS)[1:])
    name = "no GPU: a dry run" if DRY else torch.cuda.get_device_name()
    return "\n\n".join([
        f"# On {name}, torch {torch.__version__}, triton {triton.__version__}", "    python benchmarks/gpu.py",
        "## Bandwidth", markdown(bandwidth_rows(kept)), "## Speed, as a ratio to eager", markdown(speeds),
        f"Geometric means: {means}. Compiling takes {compile_share(speeds):.2f} of torch.compile's time, in the mean.",
        "## Device time, launches, memory", markdown(device_rows(kept)),
        "## Twelve lengths, one after another", markdown(varying_rows(kept)),
        "## Block sizes", markdown(block_rows(kept)),
        "## Where we are slowest beside torch.compile", "```\n" + worst(kept) + "\n```",
    ])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", default="", help="measure what a regular expression finds: bandwidth, 'BERT.*bf16'")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after these, begin nothing new")
    parser.add_argument("--kept", type=Path, default=Path("build/gpu.jsonl"), help="where measured values are kept")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes compile side by side")
    parser.add_argument("--dry-run", action="store_true", help="everything once, small, on the CPU")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measured(options.row)))
        return
    kept = Kept(options.kept, options.only, options.minutes)
    measure_all(kept, options.jobs)
    text = written(kept)
    print(text)
    if options.markdown:
        before = options.markdown.read_text() if options.markdown.exists() else ""
        _, heading, rest = before.partition(BY_HAND)
        options.markdown.write_text(f"{text}\n" + (f"\n{heading}{rest}" if heading else ""))


if __name__ == "__main__":
    main()
