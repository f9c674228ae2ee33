"""Programs that use torch's features inside of a captured function, by this translator and by torch.compile.

The programs are those of ``tests/torch_ops``; results, changed arguments,
gradients and random numbers are compared with plain Python. One graph without a break is what is counted.
"""
from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from common import TRANSLATORS, markdown, reset

import sot

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "torch_ops")]
harness = importlib.import_module("harness")
TABLES = {"test_torch_func": ("WHOLE",), "test_torch_gradients": ("WHOLE",), "test_torch_leaves": ("WHOLE",),
          "test_torch_numpy": ("WHOLE", "RIGHT"), "test_torch": ("WHOLE", "RIGHT"), "test_autograd": ("AUTOGRAD",)}


def difference(fn: Callable[..., Any], translated: Callable[..., Any], make: Callable[[], Any]) -> str | None:
    want, got = harness.outcome(fn, (make(),), {}), harness.outcome(translated, (make(),), {})
    return harness.first(harness.same(getattr(got, name), getattr(want, name), name)
                         for name in ("raised", "result", "printed", "args", "grads", "random"))


def verdict(fn: Callable[..., Any], translator: str, make: Callable[[], Any]) -> str:
    """``one graph``, ``N graphs`` or ``differs``."""
    reset(translator)
    torch._dynamo.utils.counters.clear()
    counter = harness.Counter()
    if translator == "sot":
        translated = sot.to_static(fn, backend=counter)
    else:
        translated = torch.compile(fn, backend=counter)
    try:
        differs = [difference(fn, translated, make) for _ in range(2)]
    except Exception as e:  # noqa: BLE001 - whatever a translator raises is its result
        return f"raises {type(e).__name__}"
    if translator == "sot":
        breaks = sum(c.stopped is not None for c in sot.translation_of(translated).captures)
    else:
        breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    if any(differs):
        return "differs"
    whole = len(counter.graphs) == 1 and not breaks
    return "one graph" if whole else f"{len(counter.graphs)} graphs, {breaks} breaks"


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
    plain = torch.arange(12.0).reshape(3, 4) / 6
    rows = []
    for module, names in TABLES.items():
        tests = importlib.import_module(module)
        for fn in (fn for name in names for fn in getattr(tests, name).values()):
            grad = module in ("test_torch_gradients", "test_autograd")
            found = {t: verdict(fn, t, lambda: plain.clone().requires_grad_(grad)) for t in TRANSLATORS}  # noqa: B023
            rows.append({"program": f"{module[5:]}.{fn.__name__}", **found})
    for translator in TRANSLATORS:
        verdicts = [row[translator] for row in rows]
        print(f"{translator}: {len(rows)} programs, {sum(v == 'one graph' for v in verdicts)} in one graph, "
              f"{sum(v == 'differs' or v.startswith('raises') for v in verdicts)} not right")
    print(markdown(rows))


if __name__ == "__main__":
    main()
