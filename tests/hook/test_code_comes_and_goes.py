"""Programs that make functions and drop them: of a function that is gone, nothing stays."""
import gc
import linecache
import sys
import types
import weakref
from collections import Counter as Count

import pytest
import torch

import sot
from sot.bytecode.decode import forget
from sot.driver import orphans
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
    "a change before what may raise": "def f(x):\n    x.add_(0)\n    return torch.linalg.inv(torch.eye(2) + x[0] ** 2)",
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
    forget()                            # of decoded code so much is kept, and no more
    if translator is not None:
        translator.drop_orphans()       # which it does from time to time
        translator.drop_records()
    gc.collect()
    kinds = Count(kind for kind in map(type, gc.get_objects())
                  if kind is types.FunctionType or str(kind.__module__).partition(".")[0] in ("sot", "torch"))
    return kinds + Count({"linecache": len(linecache.cache)})


@pytest.mark.slow
@pytest.mark.parametrize("mode, name", [*(("to_static", name) for name in SOURCES), *(("enable", name) for name in (
    "whole", "inlined", "a break below", "a closure", "a module", "a change before what may raise"))])
def test_nothing_stays_of_functions_that_are_gone(name, mode):
    source = SOURCES[name]
    sot.reset()
    with sot.enable(backend="eager", exclude=__name__) if mode == "enable" else sot.disable():
        program = program_of(sot._hook.get_callback())
        translator = program and program.translator
        make(source, mode == "to_static", 3)
        for _ in range(3):      # what grows, grows each time; what other tests have left goes at some time
            before = objects(translator)
            make(source, mode == "to_static", 10)
            after = objects(translator)
            grown = {kind: n - before[kind] for kind, n in after.items() if n - before[kind] >= 8}
            if not grown:
                break
    assert grown == {}, f"in 10 functions, with Python {sys.version_info[:2]}"


def test_functions_that_live_keep_their_entries(backend):
    """Of a program that makes functions, those that are held are not captured again."""
    namespace = {"torch": torch, "__name__": "made"}
    exec("def make(k):\n    def f(x): return torch.relu(x) * k\n    return f\n"
         "def g(x):\n    y = x * 2\n    print(end='')\n    breaks()\n    return torch.relu(y)\n"
         "def breaks(): open('/dev/null').close()", namespace)
    f, g = namespace["make"](3), namespace["g"]
    with sot.enable(backend=backend, exclude=__name__):
        translator = program_of(sot._hook.get_callback()).translator

        def captured():     # not those of other threads, nor of callbacks that the garbage collector calls
            return [capture.name for capture in translator.captures if capture.place.file == "<string>"]
        want = f(X), g(X), namespace["make"](3)(X)
        count, captures = len(backend.graphs), captured()
        translator.drop_orphans()
        assert (f(X) - want[0]).abs().sum() == 0 and (g(X) - want[1]).abs().sum() == 0
        assert namespace["make"](3)(X).equal(want[0])
    assert (len(backend.graphs), captured()) == (count, captures)
    assert "__sot_states__" not in {**f.__dict__, **g.__dict__, **namespace}


@pytest.mark.slow
def test_a_program_drops_them_by_itself(monkeypatch):
    monkeypatch.setattr(orphans, "MOST", 8)
    gone = []
    with sot.enable(backend="eager", exclude=__name__):
        program_of(sot._hook.get_callback()).translator.owners.most = 8
        for _ in range(40):
            namespace = {"torch": torch, "__name__": "made"}
            exec("def f(x): return torch.relu(x)", namespace)
            namespace["f"](X)
            gone.append(weakref.ref(namespace["f"]))
    assert sum(f() is not None for f in gone) <= 18


def test_nothing_is_collected_where_the_program_has_turned_that_off(monkeypatch):
    owners = orphans.Owners()
    owners.most = 0
    function = types.FunctionType((lambda x: x).__code__, {})
    for is_on in (True, False):     # asked like this, because another thread may have paused it
        monkeypatch.setattr(orphans.gc, "isenabled", lambda is_on=is_on: is_on)
        assert owners.note(function) is is_on
