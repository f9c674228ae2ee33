"""Saved models of the zoo in ONNX Runtime and in AOTInductor, at sizes that differ.

    python benchmarks/saved_models/other_runtimes.py                        those that sot.save and torch.export save
    python benchmarks/saved_models/other_runtimes.py --cases 'bert|lenet'   some of them

A case counts if the runtime gives what the model gives, at the sizes of the example and at those of
``saving.py``. The program is the one of ``sot.load(...).programs``. Where that fails, the program of torch.export goes
the same way, to tell a fault of the file from one of the runtime. Finished cases are lines of JSON in ``--folder`` and
are not run again.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from saving import CASES, HERE, Case, check, exported, finished, in_a_child, parser_of, save

Program = Any       # torch.export.ExportedProgram
Runs = list[tuple[tuple, dict, list]]


# ---- the runtimes: a program, and a folder to write in, give what is called like the program ----
def onnx(program: Program, folder: Path) -> Callable[..., Any]:
    import numpy as np
    import onnxruntime
    import torch
    torch.onnx.export(program, (), folder / "model.onnx", dynamo=True)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    tree = torch.utils._pytree

    def run(*args: Any, **kwargs: Any) -> Any:
        given = tree.tree_leaves((args, kwargs))
        names = [node.name for node in session.get_inputs()]
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        found = iter(session.run(None, {name: leaf.numpy() for name, leaf in zip(names, tensors, strict=True)}))
        leaves = [torch.from_numpy(np.asarray(next(found))) if isinstance(out, str) else out
                  for out in program.graph_signature.user_outputs]
        return tree.tree_unflatten(leaves, program.call_spec.out_spec)
    return run


def aotinductor(program: Program, folder: Path) -> Callable[..., Any]:
    import torch
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.aoti.pt2"))
    return torch._inductor.aoti_load_package(package)


RUNTIMES = {"ONNX Runtime": onnx, "AOTInductor": aotinductor}


# ---- one case ----
def ours(case: Case, runs: Runs, folder: Path, runtime: Callable[..., Any]) -> None:
    import sot
    loaded = sot.load(save(case, folder))
    check(case, runs, loaded)
    method, = loaded._sot_calls.values()        # which binds the arguments, and makes the model's own result of a tree
    method.graph = runtime(loaded.programs["forward"], folder)
    check(case, runs, loaded)


def theirs(case: Case, runs: Runs, folder: Path, runtime: Callable[..., Any]) -> None:
    program = exported(case, lambda program: check(case, runs, program.module()))
    check(case, runs, runtime(program, folder))


def tried(way: Callable[..., None], case: Case, runs: Runs, runtime: Callable[..., Any]) -> str:
    """Why it fails; "" if it does not."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with case.torch.no_grad():
                way(case, runs, Path(folder), runtime)
        except Exception as e:
            return re.sub(r"\x1b\[\d*m", "", f"{type(e).__name__}: {e}")[:1200]    # without colours
    return ""


def one(name: str) -> dict[str, Any]:
    """The row of a case, in this process."""
    case = Case(name)
    runs = case.runs()
    row: dict[str, Any] = {"case": name, "sizes": "batch, length" if 1 in case.dims else "batch"}
    for key in RUNTIMES:
        start = time.perf_counter()
        row[key] = tried(ours, case, runs, RUNTIMES[key])
        row[f"{key} s"] = round(time.perf_counter() - start)
        if row[key]:
            row[f"{key}, torch.export"] = tried(theirs, case, runs, RUNTIMES[key])
    return row


# ---- all of them ----
def saved_by_both(page: str) -> list[str]:
    """The cases with two times "yes" in a result file of saving.py."""
    return [line.split(" | ")[0].strip("| ") for line in page.splitlines() if line.endswith("| yes | yes |")]


def page(rows: list[dict[str, Any]]) -> str:
    import torch
    run = [row for row in rows if "skipped" not in row]

    def mark(row: dict[str, Any], key: str) -> str:
        other = row.get(f"{key}, torch.export")
        return "yes" if not row[key] else "no; torch.export's: " + ("no" if other else "yes")
    good = ", ".join(f"{key} {sum(not row[key] for row in run)}" for key in RUNTIMES)
    table = [f"| {row['case']} | {row['sizes']} | {' | '.join(mark(row, key) for key in RUNTIMES)} |" for row in run]
    notes = [f"- {row['case']}: {key}: {' '.join(row[key].split())[:300]}"
             for row in run for key in row if key.partition(",")[0] in RUNTIMES and row[key]]
    notes += [f"- {row['case']}: {row['skipped']}" for row in rows if "skipped" in row]
    head = " | ".join(RUNTIMES)
    return "\n".join([
        f"# Saved models in other runtimes, {datetime.date.today().isoformat()}", "",
        f"torch {torch.__version__}, python {sys.version.split()[0]}: `benchmarks/saved_models/other_runtimes.py`. "
        f"{len(run)} models that sot.save and torch.export both save: {good}.", "",
        f"| model | sizes that differ | {head} |", "| --- | --- |" + " --- |" * len(RUNTIMES), *table, "", *notes, ""])


def main() -> None:
    options = parser_of(__doc__).parse_args()
    if options.one:
        print(json.dumps(one(options.one), indent=1))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "other_runtimes.jsonl"
    both = saved_by_both(max((HERE / "results").glob("*-saving.md")).read_text())
    for name in [name for name in CASES if name in both and re.search(options.cases, name)]:
        if name not in finished(kept):
            row = in_a_child(one, name, seconds=1200)
            print(json.dumps(row)[:400], flush=True)
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
        rows = list(finished(kept).values())
        (options.out / f"{datetime.date.today().isoformat()}-other-runtimes.md").write_text(page(rows))


if __name__ == "__main__":
    main()
