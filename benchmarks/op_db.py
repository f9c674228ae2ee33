"""torch's databases of operators and modules: how many give eager's outputs and gradients, how many in one graph.

Every entry of ``op_db`` and ``module_db`` (CPU, float32, else the first dtype that it supports) is called with its
first sample inputs, plainly and translated. Give names to see what differs: ``python op_db.py add nn.LSTM``.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import TRANSLATORS, Row, markdown, reset, translate
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves

SAMPLES = 3


@dataclass
class Entry:
    """One call to compare: ``fn(*args, **kwargs)``."""

    name: str
    fn: Callable[..., Any]
    args: tuple
    kwargs: dict


def operators() -> Iterator[Entry]:
    for info in op_db:
        dtype = torch.float32 if torch.float32 in info.dtypes else next(iter(info.dtypes), torch.float32)
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        grad = info.supports_autograd and dtype.is_floating_point
        for i, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=grad)):
            if i == SAMPLES:
                break
            yield Entry(name, info.op, (sample.input, *sample.args), sample.kwargs)


def modules() -> Iterator[Entry]:
    for info in module_db:
        if torch.float32 not in info.dtypes:
            continue
        found = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=True, training=False)
        for i, sample in enumerate(found):
            if i == SAMPLES or sample.forward_input is None:
                break
            made = sample.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).eval()
            yield Entry(info.name, module, sample.forward_input.args, sample.forward_input.kwargs)


def function_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)
    return call


def outcome(fn: Callable[..., Any], entry: Entry) -> list[Any]:
    """Outputs, arguments afterwards, gradients, and the next random number."""
    torch.manual_seed(0)
    args, kwargs = detached((entry.args, entry.kwargs))
    result = fn(*args, **kwargs)
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
    inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.is_leaf and t.requires_grad]
    loss = [t.abs().sum() if t.is_complex() else t.sum() for t in outputs if t.requires_grad]
    grads = torch.autograd.grad(sum(loss), inputs, allow_unused=True) if loss and inputs else []
    after = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    return [*tree_leaves(result), *after, *grads, torch.rand(1)]


def detached(value: Any) -> Any:
    """A copy with tensors that are leaves, as they are in the samples."""
    return torch.utils._pytree.tree_map(
        lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor)
        and v.layout == torch.strided else copy.deepcopy(v), value)


def differs(got: list[Any], wanted: list[Any]) -> str | None:
    if len(got) != len(wanted):
        return f"{len(got)} values, {len(wanted)} wanted"
    for a, b in zip(got, wanted, strict=True):
        if isinstance(b, torch.Tensor):
            if not isinstance(a, torch.Tensor) or (a.shape, a.dtype, a.layout) != (b.shape, b.dtype, b.layout):
                return "another kind of tensor"
            x, y = (comparable(t) for t in (a, b))
            if not torch.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True):
                return "other values"
        elif type(a) is not type(b) or not (a == b or (a != a and b != b)):
            return f"{a!r} where {b!r} is wanted"
    return None


def comparable(t: torch.Tensor) -> torch.Tensor:
    dense = t.detach().to_dense() if t.layout != torch.strided else t.detach()
    return dense.to(torch.complex128 if t.is_complex() else torch.float64)


def compare(entry: Entry, translator: str) -> tuple[str, int]:
    """("right", graphs), or what is wrong."""
    try:
        wanted, again = (outcome(function_of(copy.deepcopy(entry.fn)), entry) for _ in range(2))
    except Exception:
        return "not run", 0
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward
    reset(translator)
    try:
        got = outcome(translate(translator, function_of(copy.deepcopy(entry.fn)), backend), entry)
    except Exception as e:
        return f"{type(e).__name__}: {str(e).strip().splitlines()[0][:100] if str(e).strip() else ''}", len(graphs)
    if differs(again, wanted):
        return "not deterministic", len(graphs)
    return differs(got, wanted) or "right", len(graphs)


def measure(entries: list[Entry], translator: str) -> Row:
    verdicts: dict[str, list[tuple[str, int]]] = {}
    start = time.perf_counter()
    for entry in entries:
        verdicts.setdefault(entry.name, []).append(compare(entry, translator))
    run = {k: v for k, v in verdicts.items() if not all(r in ("not run", "not deterministic") for r, _ in v)}
    wrong = {k: next(r for r, _ in v if r not in FINE) for k, v in run.items() if not all(r in FINE for r, _ in v)}
    for name, why in sorted(wrong.items()):
        print(f"  {translator}: {name}: {why}", file=sys.stderr)
    one = [k for k, v in run.items() if k not in wrong and all(n == 1 for r, n in v if r == "right")]
    return {"translator": translator, "entries": len(run), "right": len(run) - len(wrong), "one graph": len(one),
            "seconds": time.perf_counter() - start}


FINE = ("right", "not run", "not deterministic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="entries, such as add or nn.LSTM; without any, all")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    parser.add_argument("--repeats", type=int, help="for the other benchmarks; nothing is repeated here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)    # fills the memory that ``empty`` and its kin return
    names = set(options.names)
    rows = []
    for what, make in (("operators", operators), ("modules", modules)):
        entries = [e for e in make() if not names or e.name in names]
        rows += [{"database": what, **measure(entries, name)} for name in TRANSLATORS if name == "sot" or not names]
    print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
