"""Runs a program plainly and translated, and says where they differ.

A program is the text of a module. Both runs have a module of their own and equal arguments; the translated one is
called several times, with the same arguments and with others, so that entries are made, used, missed and made again.
"""
from __future__ import annotations

import contextlib
import io
import logging
import random
import re
import signal
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import sot
from sot import _hook
from sot.driver.capture_policy import Policy
from sot.driver.recompile_limit import RecompileWarning
from sot.driver.whole_program import WholeProgram
from sot.frontend.global_mode import EVERYTHING, translator_for

from .picture import PROGRAM, Picture, difference
from .world import INPUTS, NUMBERS, World, hooks_of, reset_torch, seed

PRELUDE = compile(Path(__file__).with_name("prelude.py").read_text(), "<prelude>", "exec")
SECONDS = 2     # for a plain call, after which the program is taken for one that does not end
SUSPENSIONS, THROWN = 8, 2      # how often a suspended program is gone on with, and when by an exception
PLAIN_RUNS = 6  # of a program that differs, to see whether they agree
PATIENCE = 30   # how many times longer a translated call may take
CALLS = ((4, 3, "k", 0.5, True), (4, 3, "k", 0.5, True), (4, 4, "m", 1.5, True), (6, 2, "k", 0.5, False),
         (4, 3, "k", -1.0, True))

# What becomes of a module's weight, in place, after these calls; the first case is called again with each.
WEIGHTS: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda weight: setattr(weight, "data", weight.data.double()),
    lambda weight: weight.requires_grad_(not weight.requires_grad),
    lambda weight: setattr(weight, "data", torch.tensor([1.0, 2.0, 3.0, 4.0])),
    lambda weight: setattr(weight, "data", torch.ones(3)))


Around = Callable[[], contextlib.AbstractContextManager]


class Endless(BaseException):
    """The program takes too long to be compared."""


class Difference(AssertionError):
    """What the translated program does is not what the plain one does."""


class Unsteady(Exception):
    """The program cannot be compared: two plain runs of it differ, because it depends on addresses, for one."""


def module_of(code: Any) -> dict[str, Any]:
    namespace = vars(sys.modules.setdefault("fuzzed", types.ModuleType("fuzzed"))).copy()
    exec(PRELUDE, namespace)
    exec(code, namespace)
    return namespace


def arguments(namespace: dict, kind: str, size: int, n: int, text: str, real: float, on: bool) -> tuple:
    x = INPUTS[kind](torch.arange(size, dtype=torch.float32) - 1.5)
    w = torch.linspace(0.5, 2.0, size).requires_grad_()
    numbers = NUMBERS[namespace["NUMBERS"]](namespace, (n, text, real, [3, 1, n], {"k": n, "m": 2}))
    return x, w, *numbers, namespace["Box"](n), on


@contextlib.contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Endless is raised after these seconds, and again at the end: the program may replace it by an exception."""
    stopped = False

    def stop(*_: Any) -> None:
        nonlocal stopped
        stopped = True
        raise Endless

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)     # again, where the interpreter has swallowed the exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if stopped:
        raise Endless


class Output(io.StringIO):
    """What a program writes. It is there after the program has closed the stream."""

    written = ""

    def close(self) -> None:
        if not self.closed:
            self.written = self.getvalue()
        super().close()


@contextlib.contextmanager
def output() -> Iterator[Output]:
    """All that is written, to either stream, by logging or as a warning, in order."""
    stream = Output()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(funcName)s:%(lineno)d %(message)s"))
    logger = logging.getLogger("fuzz")
    logger.addHandler(handler)
    logger.propagate = False
    shown, sys.unraisablehook = sys.unraisablehook, lambda e: print("ignored", e.exc_type.__name__)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.simplefilter("ignore", RecompileWarning)   # it is ours, and promised
            warnings.filterwarnings("ignore", "Truncating the start")     # its place is the graph: known
            warnings.filterwarnings("ignore", ".*degrees of freedom")       # likewise
            warnings.filterwarnings("ignore", "To copy construct")      # what is compiled warns once
            warnings.filterwarnings("ignore", "Casting complex values to real")     # once for each place in torch's C++
            yield stream
    finally:
        logger.removeHandler(handler)
        sys.unraisablehook = shown
        stream.close()


def driven(result: Any) -> Any:
    """The result of a call. One that suspends is gone on with: what it hands over, and its result."""
    if not isinstance(result, (types.GeneratorType, types.CoroutineType)):
        return result
    passed: list[Any] = []
    try:
        passed.append(result.send(None))
        for i in range(SUSPENSIONS):
            passed.append(result.throw(KeyError(i)) if i == THROWN else result.send(i))
        result.close()
    except StopIteration as e:
        return passed, e.value
    return passed


def call(namespace: dict, program: Callable, case: tuple, world: World,
         enabled: Around = contextlib.nullcontext) -> list[str]:
    """Call the program, and show what a program can see afterwards."""
    seed(5)
    reset_torch()
    args = arguments(namespace, *case)
    picture = Picture()
    with output() as stream, world.around(), hooks_of(namespace), enabled():
        try:
            result, raised = driven(program(*args)), None
        except Exception as e:  # noqa: BLE001 - to be compared
            result, raised = None, e
    state = {"output": stream.written, "result": result, "raised": raised, "args": args, "random": random.random(),
             "torch": torch.rand(1).item(), "grad_enabled": torch.is_grad_enabled(), "exception": sys.exc_info()[0]}
    state["globals"] = {k: v for k, v in namespace.items() if k in (
        "COUNT", "CACHE", "STACK", "STATE", "net", "Base", "Box", "opt", "COUNTS", "described") or k not in BOTH}
    with torch._C.DisableTorchFunctionSubclass():       # a program may replace the one of its subclass by what raises
        lines = [line for name, value in state.items() for line in picture.lines(name, value)]
    # A traceback holds this frame and the program's, whose graphs of autograd would last until the collector runs.
    del picture, state, raised
    return lines


BOTH = {*module_of(compile("", PROGRAM, "exec")), "helper", "program", "Quiet", "HOOKS", "__warningregistry__"}

with warnings.catch_warnings():     # these warnings come once in a process, and would come in one of two runs
    warnings.simplefilter("ignore")
    float(torch.ones((), requires_grad=True))
    torch.ones((), dtype=torch.complex64).float()


def eager(gm: torch.fx.GraphModule, inputs: Any) -> Callable:
    return gm.forward


HOOKS = r"(?<=_hooks)(: OrderedDict )?\[[\d, ]+\]|(?<=\.id = int )\d+"    # numbers that AOTAutograd's hooks use up
HISTORY = re.compile(rf"(?<=leaf=False )\S+|,(\s|\\n)+grad_fn=<\w+>|version=\d+|{HOOKS}")
READ_HISTORY = re.compile(r"type\(x\.grad_fn\)\.__name__|[\w.]+\._version")
VERSION = re.compile(r"version=\d+")
BACKENDS: dict[str, Any] = {"eager": "eager", "function": eager, "aot_eager": "aot_eager"}


def compare(source: str, counts: Counter[str] | None = None, backend: str = "eager") -> None:
    """Raise Difference where the translated program differs from the plain one, or where the translator failed, and
    Unsteady where it differs, but plain runs do as well.
    """
    try:
        compare_once(source, counts, backend)
    except Difference as e:
        check_plain_runs(source, e)
        raise


BUG_OF_TORCH = "INTERNAL ASSERT FAILED"      # what is left then is not defined


def check_plain_runs(source: str, found: Difference) -> None:
    """Raise Unsteady if plain runs of the program differ, or if an assertion of torch fails in them. Each begins with
    other memory, so new objects have other addresses.
    """
    code, kept = compile(source, PROGRAM, "exec", dont_inherit=True), []
    runs = []
    for i in range(PLAIN_RUNS):
        namespace, world = module_of(code), World()
        kept.append([(torch.ones(1), object(), [j]) for j in range(7 * i)])
        lines = []
        for case, change in calls_of(source, namespace):
            if callable(change):
                change(namespace["net"].scale)
            elif change:
                world.change(change, namespace)
            with limited():
                lines += call(namespace, namespace["program"], case, world)
        runs.append(lines)
    if any(difference(runs[0], lines) for lines in runs[1:]) or any(BUG_OF_TORCH in line for line in runs[0]):
        raise Unsteady from found


def compare_once(source: str, counts: Counter[str] | None, backend: str) -> None:
    source = source if backend == "eager" else READ_HISTORY.sub(lambda m: "0" if "version" in m[0] else "'?'", source)
    code = compile(source, PROGRAM, "exec", dont_inherit=True)
    plain, mine, world = module_of(code), module_of(code), World()
    sot.reset()
    translated, enabled, captures = translated_by(mine, BACKENDS[backend])

    for number, (case, change) in enumerate(calls_of(source, plain)):
        if callable(change):
            for namespace in (plain, mine):
                change(namespace["net"].scale)
        elif change:
            world.change(change, plain, mine)
        runs: list[list[str]] = []
        for called in ((plain, plain["program"], case, world), (mine, translated, case, world, enabled)):
            try:
                with limited(SECONDS * PATIENCE if runs else SECONDS):
                    runs.append(call(*called))      # from one line, which a logged error shows
            except Endless:
                if not runs:
                    raise
                raise Difference(f"call {number}: the translated program does not end") from None
        want, got = runs
        if counts is not None:
            counts["calls that raise"] += "raised = NoneType None" not in want
        if backend != "eager":      # its graphs have histories of their own
            want, got = ([HISTORY.sub("", line) for line in lines] for lines in (want, got))
        elif "register_hook" in source:     # a hook may keep the gradient, so ``.grad`` is a copy of it
            want, got = ([VERSION.sub("", line) for line in lines] for lines in (want, got))
        if found := difference(want, got):
            raise Difference(f"call {number}, program{case}{f' after {change}' if change else ''}\n{found}")
        check_captures(captures(), number)
    for capture in captures() if counts is not None else ():
        kind = "fallback" if capture.fallback else "broken" if capture.stopped else "whole"
        counts[f"captures: {kind}"] += 1
        if capture.stopped:
            counts[f"stopped: {capture.stopped.reason.name}"] += 1


def translated_by(namespace: dict, backend: Any) -> tuple[Callable, Around, Callable[[], list]]:
    """The program as it is called, what is around each call, and what gives its captures so far."""
    if namespace["MODE"] == "to_static":
        translated = sot.to_static(namespace["program"], backend=backend)
        return translated, contextlib.nullcontext, lambda: translated.captures
    whole = WholeProgram(translator_for(backend), Policy(EVERYTHING))

    @contextlib.contextmanager
    def enabled() -> Iterator[None]:
        before = _hook.set_callback(whole.callback)
        try:
            yield
        finally:
            _hook.set_callback(before)
    return namespace["program"], enabled, lambda: whole.load().captures


def calls_of(source: str, namespace: dict) -> list[tuple[tuple, Any]]:
    """The cases in turn, each with what is changed before it."""
    kinds = namespace["INPUTS"]
    cases = [(kinds[i % len(kinds)], *case) for i, case in enumerate(CALLS)]
    weights = WEIGHTS if "net" in source else ()
    return [*((case, None) for case in cases), *((cases[0], change) for change in weights),
            *((cases[i % 2], change) for i, change in enumerate(namespace["CHANGES"]))]


def check_captures(captures: list, number: int) -> None:
    for capture in captures:
        if capture.stopped is not None and capture.stopped.reason.name == "INTERNAL":
            raise Difference(f"call {number}: {capture.stopped}")


def differs(source: str, backend: str = "eager") -> str | None:
    """How the translated program differs; None also for text that is no program, or none that ends."""
    try:
        compare(source, backend=backend)
    except Difference as e:
        return str(e)
    except (Exception, Endless):    # the module itself cannot be made, for one
        pass
    return None
