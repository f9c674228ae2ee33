"""Real models saved with sizes that may differ, loaded without their source, and run at other sizes.

    python benchmarks/saved_models/saving.py                         the chosen cases, beside torch.export.export
    python benchmarks/saved_models/saving.py --cases '^timm/' --all  others of the zoo

A case counts if the file, loaded by a process in which the model's package cannot be imported, gives what the model
gives: at the sizes of the example and at another batch and, where the model takes one, another length. torch.export is
given the same examples and dimensions (Dim.DYNAMIC, and Dim.AUTO if that fails), and is run in the process that has
the source. Finished cases are lines of JSON in ``--folder`` and are not run again.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
ZOO = Path(os.environ.get("ZOO", HERE.parent.parent / "shared" / "zoo"))
CASES = """
    transformers/bert transformers/gpt2 transformers/llama transformers/t5 transformers/vit plain/lm_lstm
    timm/deit_tiny_patch16_224 plain/unet transformers/qwen2 transformers/clip transformers/mixtral plain/print_log
    plain/hooks_parametrize transformers/resnet transformers/mamba transformers/distilbert plain/lm_gru_bi
    plain/vae_loss transformers/gemma transformers/swin transformers/mbart plain/py_features plain/packed_lstm
    plain/fft_filter transformers/albert transformers/convnext transformers/deberta-v2 plain/nn_transformer_mask
    plain/moe_where
    timm/dla46x_c timm/edgenext_xx_small plain/autograd_function plain/numpy_inside plain/lstm_crf_viterbi
    transformers/phi3 transformers/bloom transformers/falcon transformers/modernbert transformers/dinov2
    plain/loop_LSTMCell plain/neural_ode_dopri5 plain/checkpoint plain/encoder_layer plain/spatial_transformer
    transformers/data2vec-audio transformers/squeezebert transformers/nystromformer transformers/xlnet
    transformers/patchtst transformers/regnet transformers/yolos transformers/rwkv plain/seq2seq_attn plain/lenet
    plain/embedding_bag plain/fake_quant_ste plain/vae_distributions plain/lm_rnn plain/actor_critic plain/early_exit
    timm/convmixer_768_32 timm/efficientvit_b0 timm/densenet121 timm/fastvit_t8 transformers/roberta
    transformers/electra transformers/marian transformers/stablelm transformers/glm transformers/m2m_100
""".split()
PACKAGES = ("transformers", "timm", "torchvision", "cases_plain")
LOAD = """
import sys
for name in {packages!r}: sys.modules[name] = None
import sot, torch, zoo
torch.set_num_threads(1)
loaded = sot.load({file!r})
for args, kwargs, want in torch.load({data!r}, weights_only=False):
    torch.manual_seed(1)
    with torch.no_grad():
        same, why = zoo.compare(want, zoo.flatten(loaded(*args, **kwargs)))
    if not same: raise SystemExit(f"differs at {{[tuple(t.shape) for t in zoo.flatten((args, kwargs))]}}: {{why}}")
"""
Sizes = dict[int, dict[int, int]]      # by the position of a tensor among the arguments: the new sizes of dimensions


# ---- one case ----
class Case:
    """A model of the zoo, its arguments, and which dimensions of them may differ."""

    def __init__(self, name: str) -> None:
        sys.path[:0] = [str(ZOO), str(HERE.parent)]
        import torch
        import tvshim  # noqa: F401
        import zoo
        torch.set_num_threads(1)
        self.torch, self.zoo, self.name = torch, zoo, name
        package, _, case = name.partition("/")
        torch.manual_seed(0)
        self.model, self.args, self.kwargs = zoo.package(package).build(case)
        if not isinstance(self.model, torch.nn.Module):
            raise SystemExit("is no module")
        self.model.eval()
        self.tree = torch.utils._pytree
        self.leaves, self.spec = self.tree.tree_flatten((self.args, self.kwargs))
        self.dims = self.free_dimensions()

    def call(self, sizes: Sizes) -> tuple[tuple, dict, list]:
        """Arguments of other sizes, and what the model makes of them."""
        torch = self.torch
        leaves = [self.resized(leaf, sizes.get(i, {})) for i, leaf in enumerate(self.leaves)]
        args, kwargs = self.tree.tree_unflatten(leaves, self.spec)
        torch.manual_seed(1)
        with torch.no_grad():
            got = copy.deepcopy(self.model)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        return args, kwargs, [t.clone() if isinstance(t, torch.Tensor) else t for t in self.zoo.flatten(got)]

    def resized(self, leaf: Any, sizes: dict[int, int]) -> Any:
        for i, size in sizes.items():
            leaf = leaf.index_select(i, self.torch.arange(size) % leaf.shape[i])
        return leaf

    def sizes(self, groups: dict[int, set[tuple[int, int]]], new: dict[int, int]) -> Sizes:
        found: Sizes = {}
        for key, size in new.items():
            for leaf, dim in groups.get(key, ()):
                found.setdefault(leaf, {})[dim] = size
        return found

    def free_dimensions(self) -> dict[int, set[tuple[int, int]]]:
        """The dimensions that may differ: all that are the batch (0), and the length of texts (1), if plain PyTorch
        takes another size there."""
        torch = self.torch
        tensors = [(i, leaf) for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor) and leaf.dim()]
        batch = tensors[0][1].shape[0] if tensors else 0
        groups = {0: {(i, 0) for i, leaf in tensors if leaf.shape[0] == batch > 1}}
        texts = [leaf for _, leaf in tensors if leaf.dim() == 2 and not leaf.is_floating_point()]
        sequences = texts or [leaf for _, leaf in tensors if leaf.dim() == 3]
        if sequences:
            length = sequences[0].shape[1]
            groups[1] = {(i, 1) for i, leaf in tensors if leaf.dim() > 1 and leaf.shape[1] == length > 1}
        return {key: group for key, group in groups.items() if group and self.takes(groups, key)}

    def takes(self, groups: dict[int, set[tuple[int, int]]], key: int) -> bool:
        leaf, dim = next(iter(groups[key]))
        try:
            self.call(self.sizes(groups, {key: self.leaves[leaf].shape[dim] + 3}))
        except Exception:
            return False
        return True

    def runs(self) -> list[tuple[tuple, dict, list]]:
        """Calls at the sizes of the example and at others."""
        found = [self.call({})]
        for batch, length in ((3, 13), (5, 7)):
            found.append(self.call(self.sizes(self.dims, {0: batch, 1: length})))
        return found

    def described(self, make: Callable[[Any, dict[int, Any]], Any]) -> tuple[tuple, dict]:
        """The arguments, each leaf with its dimensions that may differ made something of."""
        free: dict[int, list[int]] = {}
        for group in self.dims.values():
            for leaf, dim in group:
                free.setdefault(leaf, []).append(dim)
        leaves = [make(leaf, free[i]) if i in free else make(leaf, []) for i, leaf in enumerate(self.leaves)]
        args, kwargs = self.tree.tree_unflatten(leaves, self.spec)
        return args, kwargs


def save(case: Case, folder: Path) -> Path:
    """The file that sot.save writes, with sizes that may differ."""
    import sot
    torch = case.torch

    def spec(leaf: Any, free: list[int]) -> Any:
        if not isinstance(leaf, torch.Tensor) or not free:
            return leaf
        return sot.InputSpec([None if i in free else size for i, size in enumerate(leaf.shape)], leaf.dtype)
    args, kwargs = case.described(spec)
    names = list(inspect.signature(case.model.forward).parameters)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        given = list(args) if not kwargs else {**dict(zip(names, args, strict=False)), **kwargs}
        return sot.save(case.model, folder / "model", input_spec=given)


def ours(case: Case, runs: list, folder: Path) -> None:
    """Save, and load without the source. Raises if it fails."""
    file = save(case, folder)
    case.torch.save(runs, folder / "runs.pt")
    code = LOAD.format(packages=PACKAGES, file=str(file), data=str(folder / "runs.pt"))
    path = os.pathsep.join([str(HERE.parent), str(ZOO)])
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=200,
                          cwd=folder, env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])


def check(case: Case, runs: list, call: Callable[..., Any]) -> None:
    """Raises RuntimeError at the first sizes where the results are not those of the model."""
    for args, kwargs, want in runs:
        case.torch.manual_seed(1)
        same, why = case.zoo.compare(want, case.zoo.flatten(call(*args, **kwargs)))
        if not same:
            sizes = [tuple(t.shape) for t in case.zoo.flatten((args, kwargs)) if isinstance(t, case.torch.Tensor)]
            raise RuntimeError(f"differs at {sizes}: {why}")


def exported(case: Case, is_right: Callable[[Any], None]) -> Any:
    """The program of torch.export with sizes that may differ. Raises if there is none, or ``is_right`` does."""
    torch, first = case.torch, None
    for kind in torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO:
        def shapes(leaf: Any, free: list[int], kind: Any = kind) -> Any:
            return dict.fromkeys(free, kind) or None
        args, kwargs = case.described(shapes)
        names = list(inspect.signature(case.model.forward).parameters)
        dynamic = {**dict(zip(names, args, strict=False)), **kwargs}
        try:
            with torch.no_grad():
                program = torch.export.export(case.model, case.args, case.kwargs, dynamic_shapes=dynamic)
                is_right(program)
            return program
        except Exception as e:
            first = first or e
            if "onstraint" not in str(e) and "specializ" not in str(e):     # AUTO differs in these only
                break
    raise first or RuntimeError


def theirs(case: Case, runs: list, folder: Path) -> None:
    """torch.export, saved, loaded and run where the source is. Raises if it fails."""
    def is_right(program: Any) -> None:
        case.torch.export.save(program, folder / "export.pt2")
        check(case, runs, case.torch.export.load(folder / "export.pt2").module())
    exported(case, is_right)


def one(name: str) -> dict[str, Any]:
    """The row of a case, in this process."""
    case = Case(name)
    if not case.dims:
        raise SystemExit("has no dimension that may differ")
    runs = case.runs()
    row: dict[str, Any] = {"case": name, "sizes": "batch, length" if 1 in case.dims else "batch"}
    with tempfile.TemporaryDirectory() as folder:
        for key, way in ("sot", ours), ("export", theirs):
            try:
                way(case, runs, Path(folder))
                row[key] = ""
            except Exception as e:
                row[key] = f"{type(e).__name__}: {e}"[:1200]
                if os.environ.get("TRACE"):
                    traceback.print_exc()
    return row


# ---- all of them ----
def in_a_child(one: Callable[[str], dict[str, Any]], name: str, seconds: int = 400) -> dict[str, Any]:
    """The row of a case, in a fork of this process, which has imported what all need."""
    sys.path[:0] = [str(ZOO), str(HERE.parent)]
    for module in "torch", "sot", "tvshim", "zoo", "transformers", "torch.export", "sot.deploy.loading":
        importlib.import_module(module)
    ours, childs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1), os.dup2(sink, 2)
        try:
            row = one(name)
        except BaseException as e:
            row = {"case": name, "skipped": f"{type(e).__name__}: {e}"[:200]}
        os.write(childs, json.dumps(row).encode()[:60_000])
        os._exit(0)
    os.close(childs)
    with os.fdopen(ours) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"case": name, "skipped": f"it died, or took longer than {seconds} s"}


def finished(path: Path) -> dict[str, dict]:
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {row["case"]: row for row in rows}


def rows_of(cases: list[str], path: Path) -> Iterator[dict[str, Any]]:
    known = finished(path)
    for name in cases:
        if name in known:
            yield known[name]
            continue
        row = in_a_child(one, name)
        print(row.get("skipped") or f"{name}: sot {row['sot'][:150] or 'ok'}; export {row['export'][:100] or 'ok'}",
              flush=True)
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")
        yield row


def page(rows: list[dict[str, Any]]) -> str:
    import torch
    run = [row for row in rows if "skipped" not in row]
    mark = {True: "yes", False: "no"}
    table = [f"| {row['case']} | {row['sizes']} | {mark[not row['sot']]} | {mark[not row['export']]} |" for row in run]
    good = {key: sum(not row[key] for row in run) for key in ("sot", "export")}
    fewer = [row["case"] for row in run if row["sot"] and not row["export"]]
    notes = [f"- {row['case']}: sot.save: {' '.join(row['sot'].split())[:300]}" for row in run if row["sot"]]
    notes += [f"- {row['case']}: torch.export: {' '.join(row['export'].split())[:200]}" for row in run if row["export"]]
    return "\n".join([
        f"# Saved models, {datetime.date.today().isoformat()}", "",
        f"torch {torch.__version__}, python {sys.version.split()[0]}: `benchmarks/saved_models/saving.py`. "
        f"{len(run)} models: sot.save {good['sot']}, torch.export {good['export']}. torch.export and not sot.save: "
        f"{', '.join(fewer) or 'none'}.", "",
        "| model | sizes that differ | sot.save | torch.export |", "| --- | --- | --- | --- |", *table, "", *notes, ""])


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=".", help="a regular expression over package/name")
    parser.add_argument("--one", help="run this case in this process")
    parser.add_argument("--folder", type=Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--all", action="store_true", help="of all cases of the zoo")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    known = (ZOO / "cases.txt").read_text().split()
    cases = [name for name in (known if options.all else CASES) if name in known and re.search(options.cases, name)]
    for _ in rows_of(cases, options.folder / "saving.jsonl"):
        rows = list(finished(options.folder / "saving.jsonl").values())
        (options.out / f"{datetime.date.today().isoformat()}-saving.md").write_text(page(rows))


if __name__ == "__main__":
    main()
