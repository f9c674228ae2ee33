"""First calls in a second process: SOT and torch.compile with Inductor, the caches of both warm.

    python benchmarks/second_process.py              # four programs of benchmarks/compiled.py
    python benchmarks/second_process.py NAME... --turns 5

Each program runs twice in processes of its own, which fill the caches, and then in turns. Times are CPU seconds from
after ``import torch`` and the making of the program's functions until the first calls have returned: imports of SOT or
of torch's compilers, capture, look-ups, loading, and the calls. ``eager`` is the program without a compiler.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

NAMES = ("resnet", "bert", "train_mlp", "train_gpt")
MODES = ("eager", "sot", "torch")
CALLS = 3
QUIET = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
         "PYTHONWARNINGS": "ignore"}


def measure(name: str, mode: str) -> dict[str, object]:
    import torch
    from compiled_programs import PROGRAMS
    torch.manual_seed(0)
    started, clock = time.process_time(), time.perf_counter()
    whole = part = as_it_is = lambda target: target
    if mode == "sot":
        import sot
        whole = sot.compile
    elif mode == "torch" and name.startswith("train_"):
        part = torch.compile
    elif mode == "torch":
        whole = torch.compile
    program = PROGRAMS[name][1](whole, part) if mode != "eager" else PROGRAMS[name][1](as_it_is, as_it_is)
    torch.manual_seed(1)
    arguments = program.arguments(0)
    for _ in range(CALLS):
        program.run(*arguments)
    return {"cpu": time.process_time() - started, "wall": time.perf_counter() - clock,
            "compilers": "torch._inductor.compile_fx" in sys.modules}


def in_process(name: str, mode: str, folder: str) -> dict[str, float]:
    env = {**os.environ, **QUIET, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{mode}", "SOT_CACHE_DIR": f"{folder}/sot",
           "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)    # an installed package has its bytecode, as torch has
    done = subprocess.run([sys.executable, __file__, "--measure", mode, name], env=env, stdout=subprocess.PIPE,
                          check=True, text=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, turns: int) -> str:
    cells = {}
    with tempfile.TemporaryDirectory() as folder:
        for mode in MODES[1:] * 2:
            in_process(name, mode, folder)
        found = [{mode: in_process(name, mode, folder) for mode in MODES} for _ in range(turns)]
    for mode in MODES:
        cells[mode] = statistics.median(turn[mode]["cpu"] for turn in found)
    text = {mode: ", ".join(f"{value:.2f}" for value in sorted(turn[mode]["cpu"] for turn in found)) for mode in MODES}
    imported = "yes" if found[0]["sot"]["compilers"] else "no"
    return (f"| {name} | {text['sot']} | {text['torch']} | {cells['sot'] / cells['torch']:.2f} | {text['eager']} "
            f"| {imported} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--measure", choices=MODES)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.names[0], options.measure)))
    else:
        print("| program | SOT | torch.compile | SOT / torch.compile | eager | SOT imports Inductor |")
        print("| --- | --- | --- | ---: | --- | --- |", flush=True)
        for name in options.names:
            print(row(name, options.turns), flush=True)
