"""Compiled programs: SOT, torch.compile and eager with Inductor, each in a process of its own, caches off.

    python benchmarks/compiled.py                        # all that is not yet in the file of results, then the table
    python benchmarks/compiled.py --out FILE NAME...     # these anew
    python benchmarks/compiled.py --quick                # without Inductor: right with aot_eager, graphs, compiles
    python benchmarks/compiled.py --table                # the table of what is there

Columns: is the result eager's (and what a call changes, after three calls); graphs that a warm call runs; how often the
backend is called over 20 sizes (with a backend that compiles nothing, so that sizes cost no seconds; the first step of
an optimizer counts); CPU time of a warm call, as a share of eager's in the same process, in turns; CPU seconds from
making the program to the end of its third call, compilers of C++ included (a training step may be compiled in its
second call). They include what each imports: torch.compile imports Inductor where the program is made, SOT in the
first call.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODES = ("eager", "sot", "torch")
QUIET = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
         "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
CALLS, ROUNDS, SIZES = 3, 15, 20


# ---- one measurement, in a process of its own ----


def cpu() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measure(name: str, mode: str, out: Path) -> None:
    import compiled_programs  # noqa: F401 - its modules, and those of torch that they import, are not what is measured
    import torch

    torch.set_num_threads(1)
    made = functools.partial(program_of, name, mode)
    started = cpu()
    program = made("inductor")
    torch.manual_seed(1)
    arguments = program.arguments(0)
    results = [program.run(*arguments) for _ in range(CALLS)]
    first = cpu() - started
    torch.save([results, program.state()], out.with_suffix(".pt"))
    found = {"first": first, **warm(program, made("", False), arguments)}
    if mode != "eager":
        found |= counts(made, mode)
    out.write_text(json.dumps(found))


def as_it_is(target: Any) -> Any:
    return target


def program_of(name: str, mode: str, backend: Any, compiling: bool = True) -> Any:
    """A program afresh. SOT compiles a training step whole; torch.compile the model and the optimizer's step, as is
    usual.
    """
    import torch
    from compiled_programs import PROGRAMS
    torch.manual_seed(0)
    make = PROGRAMS[name][1]
    if mode == "eager" or not compiling:
        return make(as_it_is, as_it_is)
    compile_ = importlib.import_module(mode).compile      # importing SOT is its cost
    with_backend = lambda target: compile_(target, backend=backend)  # noqa: E731
    return make(as_it_is, with_backend) if mode == "torch" and name.startswith("train_") else make(
        with_backend, as_it_is)


def warm(program: Any, eager: Any, arguments: tuple) -> dict[str, float]:
    """CPU seconds of a call, of the program and of eager's in turns: the lower quartile of both."""
    times: dict[str, list[float]] = {"warm": [], "beside": []}
    started = time.process_time()
    eager.run(*arguments), program.run(*arguments)
    calls = max(1, int(0.02 / max(time.process_time() - started, 1e-5)))
    for _ in range(ROUNDS):
        for key, one in (("warm", program), ("beside", eager)):
            started = time.process_time()
            for _ in range(calls):
                one.run(*arguments)
            times[key].append((time.process_time() - started) / calls)
    return {key: sorted(values)[len(values) // 4] for key, values in times.items()}


def counts(made: Any, mode: str) -> dict[str, int]:
    """Graphs that a warm call runs, and how often the backend is called over all sizes."""
    import torch

    import sot
    graphs: list[Any] = []
    runs: list[Any] = []

    def counting(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)

        def run(*args: Any) -> Any:
            runs.append(gm)
            return gm(*args)
        return run

    torch._dynamo.reset() if mode == "torch" else sot.reset()
    program = made(counting)
    for _ in range(3):      # the first step of an optimizer makes its state
        runs.clear()
        program.run(*program.arguments(0))
    once = len(runs)
    for i in range(SIZES):
        program.run(*program.arguments(i))
    return {"graphs": once, "compiles": len(graphs)}


def quick(name: str) -> dict[str, Any]:
    """A row without Inductor, in this process: right with aot_eager, and the counts."""
    import torch
    wanted = calls_of(program_of(name, "eager", ""))
    row: dict[str, Any] = {"eager": {}}
    for mode in MODES[1:]:
        try:
            row[mode] = {"difference": differs(calls_of(program_of(name, mode, "aot_eager")), wanted, name)}
            row[mode] |= counts(functools.partial(program_of, name, mode), mode)
        except Exception as e:  # noqa: BLE001 - any, for the table
            row[mode] = {"error": f"{type(e).__name__}: {e}"[:300]}
        torch._dynamo.reset()
    return row


def calls_of(program: Any) -> list[Any]:
    """What some calls return, and what they change."""
    import torch
    torch.manual_seed(1)
    arguments = program.arguments(0)
    return [[program.run(*arguments) for _ in range(CALLS)], program.state()]


# ---- all of them ----


def run(name: str) -> dict[str, Any]:
    """A row: the three measurements, and whether the results agree."""
    row: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = new_cache(Path(folder) / "sot")
        for mode in MODES:
            out = Path(folder) / f"{mode}.json"
            env = {**os.environ, **QUIET, "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / f"cache-{mode}"),
                   "SOT_CACHE_DIR": str(cache),
                   "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
            env.pop("PYTHONDONTWRITEBYTECODE", None)    # an installed package has its bytecode, as torch has
            done = subprocess.run([sys.executable, __file__, "--measure", name, mode, str(out)], env=env, text=True,
                                  capture_output=True)
            row[mode] = json.loads(out.read_text()) if out.exists() else {
                "error": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
        for mode in MODES[1:]:
            if "error" not in row[mode]:
                row[mode]["difference"] = difference(Path(folder) / f"{mode}.pt", Path(folder) / "eager.pt", name)
    return row


def new_cache(folder: Path) -> Path:
    """A cache with nothing but what SOT compiles once for a torch that is installed."""
    from sot.support.cache_folder import private_folder
    from sot.torch_compat import native
    native.build(*native.LIBRARIES)
    folder.mkdir(mode=0o700)
    (folder / "native").symlink_to(private_folder("native"))
    return folder


def difference(a: Path, b: Path, name: str) -> str:
    import torch
    return differs(torch.load(a), torch.load(b), name)


def differs(a: Any, b: Any, name: str) -> str:
    """How results differ; empty if they do not, within what half precision and other orders of sums make."""
    import torch
    try:
        torch.testing.assert_close(a, b, rtol=2e-2 if "amp" in name else 1e-3, atol=2e-2 if "amp" in name else 2e-3)
    except AssertionError as e:
        return str(e).strip().replace("\n", " ")[:200]
    return ""


def table(results: dict[str, Any]) -> str:
    from compiled_programs import PROGRAMS
    lines = ["| program | kind | right | graphs | compiles, 20 sizes | warm / eager | warm, ours / theirs | "
             "first calls, s | ours / theirs |", "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    warm_ratios, first_ratios = [], []
    for name, (kind, _) in PROGRAMS.items():
        if name not in results:
            continue
        row = results[name]
        ours, theirs = row["sot"], row["torch"]
        if "error" in ours or "error" in theirs:
            failed = " / ".join(r.get("error", "yes") for r in (ours, theirs))
            lines.append(f"| {name} | {kind} | {failed} | | | | | | |")
            continue
        right = " / ".join({"": "yes", None: "?"}.get(r.get("difference"), "no") for r in (ours, theirs))
        if "warm" not in ours:
            lines.append(f"| {name} | {kind} | {right} | {ours['graphs']} / {theirs['graphs']} | {ours['compiles']} / "
                         f"{theirs['compiles']} | | | | |")
            continue
        warm_ = ours["warm"] / ours["beside"], theirs["warm"] / theirs["beside"]
        warm_ratios.append(warm_[0] / warm_[1]), first_ratios.append(ours["first"] / theirs["first"])
        lines.append(f"| {name} | {kind} | {right} | {ours['graphs']} / {theirs['graphs']} | {ours['compiles']} / "
                     f"{theirs['compiles']} | {warm_[0]:.2f} / {warm_[1]:.2f} | {warm_ratios[-1]:.2f} | "
                     f"{ours['first']:.1f} / {theirs['first']:.1f} | {first_ratios[-1]:.2f} |")
    lines.append(f"| geometric mean of {len(warm_ratios)} | | | | | | {mean(warm_ratios):.3f} | | "
                 f"{mean(first_ratios):.3f} |")
    return "\n".join(lines)


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / max(len(values), 1))


def heading() -> str:
    import torch
    model = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine()) if Path("/proc/cpuinfo").exists() else ""
    return (f"# Compiled programs, {datetime.date.today()}\n\n{model}, {os.cpu_count()} cores, CPython "
            f"{platform.python_version()}, torch {torch.__version__}, `inductor`. Ours / torch.compile's; see "
            "`benchmarks/compiled.py` for the columns. Rows without times are without Inductor (`--quick`).\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / f"{datetime.date.today()}-compiled.json")
    options = parser.parse_args()
    if options.measure:
        measure(options.names[0], options.names[1], Path(options.names[2]))
        return
    from compiled_programs import PROGRAMS
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in [] if options.table else options.names or [n for n in PROGRAMS if n not in results]:
        results[name] = quick(name) if options.quick else run(name)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name]), flush=True)
    options.out.with_suffix(".md").write_text(heading() + table(results) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
