"""Programs that make functions and drop them: of a function that is gone, nothing stays."""
import gc
import linecache
import sys
import types
from collections import Counter as Count

import pytest
import torch

import sot
from sot.bytecode.decode import forget
from sot.driver.whole_program import program_of

X = torch.ones(3)
SOURCES = {
    "whole": "def f(x): return x + 1",
    "a break": "def f(x):\n    y = x * 2\n    sot.graph_break()\n    return y + 1",
    "inlined": "def g(x): return x * 2\ndef f(x): return g(x) + g(x + 1)",
    "a break below": "def g(x):\n    x = x * 2\n    sot.graph_break()\n    return x\ndef f(x): return g(x) + 1",
    "recursion": "def f(x, n=3): return x if n == 0 else f(x + n, n - 1)",
    "a closure": "def make(k):\n    def f(x): return x * k\n    return f\nf = make(3)",
    "a module": "class M(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                "        self.w = torch.nn.Parameter(torch.ones(3))\n"
                "    def forward(self, x): return x * self.w\nf = M()",
    "a generator": "def f(x):\n    def steps():\n        yield x\n        yield x + 1\n    return sum(steps())",
}


def make(source, static, count):
    """Makes the function that often, and calls it with arguments for two entries."""
    for _ in range(count):
        namespace = {"sot": sot, "torch": torch, "__name__": "made"}
        exec(source, namespace)
        f = namespace.pop("f") if source.startswith("class") else namespace["f"]
        f = sot.to_static(f, backend="eager") if static else f
        for x in (X, X, X.double()):
            f(x)


def objects(translator):
    for _ in range(2):
        if translator is not None:
            translator.drop_records()       # which it does from time to time
        forget()                            # of decoded code so much is kept, and no more
        gc.collect()
    kinds = Count(kind for kind in map(type, gc.get_objects())
                  if kind is types.FunctionType or str(kind.__module__).partition(".")[0] in ("sot", "torch"))
    return kinds + Count({"linecache": len(linecache.cache)})


# A whole program's entry that reads globals keeps their dict, and with it the function.
@pytest.mark.parametrize("mode, name", [*(("to_static", name) for name in SOURCES), ("enable", "whole"),
                                        ("enable", "a closure")])
def test_nothing_stays_of_functions_that_are_gone(name, mode):
    source = SOURCES[name]
    sot.reset()
    with sot.enable(backend="eager", exclude=__name__) if mode == "enable" else sot.disable():
        program = program_of(sot._hook.get_callback())
        translator = program and program.translator
        make(source, mode == "to_static", 3)
        before = objects(translator)
        make(source, mode == "to_static", 10)
        after = objects(translator)
    grown = {kind: n - before[kind] for kind, n in after.items() if n - before[kind] >= 8}
    assert grown == {}, f"in 10 functions, with Python {sys.version_info[:2]}"
