"""The pipeline from a frame to an entry: execute, choose the exit, build the graph, emit, cache.

``Translator.callback`` is what the hook asks at every call that no entry answers. Whatever goes wrong here, the
frame is run by Python as it is, and the reason is recorded; in strict mode it is raised.
"""
from __future__ import annotations

import atexit
import functools
import gc
import os
import sysconfig
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch.nn.modules.lazy import LazyModuleMixin

from sot import _hook, limits, log, marks, recording
from sot.backends import Backend, BackendError
from sot.emit import Emitter, write_exit
from sot.entry import GraphCall, make_entry
from sot.errors import Break, CaptureError, CaptureStop, LeftToPython, NotRebuildable, Reason, Refused, Skip
from sot.execute.builtins.registry import HANDLERS
from sot.execute.machine import OURS, Machine, Stopped
from sot.execute.watchers import runs_at_any_time, watches
from sot.execute.wrapping import NUMPY_SCALARS, is_library
from sot.graph_calls import CompilesGraphs, FloatsMustBeConstant, GraphCompiler
from sot.guards import EqualsGuard, LengthGuard, RelationGuard
from sot.idle import Idle
from sot.limits import unrolling
from sot.misses import Cached, misses, tell_too_often
from sot.origin import Arg, Length, Origin
from sot.progress import timed
from sot.records import BreakRecord, Capture, GuardRecord, Miss, Place
from sot.resume import SLOT, origin
from sot.symbols import STATIC, ShapesMustBeStatic, Variation
from sot.tensor_guards import ArrayGuard, TensorGuard, ValuesGuard
from sot.terms import leaves
from sot.torch_compat import (
    GlobalState,
    has_saved_tensors_hooks,
    in_function_transform,
    in_mode,
    module_tagger,
    new_fake_mode,
    no_saved_tensors_hooks,
    quiet,
    without_subclasses,
)
from sot.turns import TURNS
from sot.values.base import NONE
from sot.values.later import NeededNow
from sot.values.numbers import NUMBER_TYPES

TORCH = str(Path(torch.__file__).parent) + os.sep
LAYERS = os.path.join(TORCH, "nn", "modules", "")
TRANSFORMS = os.path.join(TORCH, "_functorch", "")     # their levels end with the graph
ROOTS = (TORCH, str(Path(np.__file__).parent) + os.sep, str(Path(__file__).parent) + os.sep,
         *(str(Path(__file__).resolve().parent.parent / name) + os.sep for name in ("sot", "graph", "backends")))
SITE_PACKAGES = os.sep + "site-packages" + os.sep
OVERRIDES = ("__torch_function__", "__torch_dispatch__")     # which torch calls for one operation each
STDLIB = sysconfig.get_path("stdlib") + os.sep


def is_users(code: CodeType, module: str) -> bool:
    """Is it code to translate: not torch's machinery, not the standard library, not ours?"""
    file = code.co_filename
    if module == "sot" or module.startswith("sot."):
        return False
    if file.startswith(LAYERS):
        return not file.endswith("module.py")
    if file.startswith(ROOTS) or file.startswith("<frozen"):
        return False
    return not file.startswith(STDLIB) or SITE_PACKAGES in file


class NumbersVary(Exception):
    """The frame changes numbers that it was captured with as constants: they are others at the next call."""

    def __init__(self, origins: set[Origin]) -> None:
        super().__init__(origins)
        self.origins = origins


_translators: weakref.WeakSet[Translator] = weakref.WeakSet()
_touched: dict[int, weakref.ref[CodeType]] = {}


def touch(code: CodeType) -> None:
    """Remember that a translator has worked on this code, as long as it lives."""
    key = id(code)
    if key not in _touched:
        _touched[key] = weakref.ref(code, lambda _: is_gone(key))


def is_gone(key: int) -> None:
    """A code object has been freed: another one may get its address."""
    _touched.pop(key, None)
    for translator in list(_translators):
        translator.forget_code(key)


class Translator:
    """What a ``to_static`` function captures with: backend and settings, and the captures made so far."""

    def __init__(self, backend: Backend, *, full_graph: bool = False, strict: bool | None = None,
                 dynamic: bool | None = None, control_flow: bool = False, check: float = 0.0) -> None:
        self.full_graph = full_graph
        self.control_flow = control_flow or full_graph
        self.strict = os.environ.get("SOT_STRICT", "") not in ("", "0") if strict is None else strict
        self.graphs = GraphCompiler(backend, check, self.strict)
        unrolling()     # raises for a value of SOT_UNROLL that means nothing
        self.limit = limits.entries()
        self.include: tuple[str, ...] = ()      # names of modules; none are all
        self.exclude: tuple[str, ...] = ()
        self.whole_program = False              # then libraries' functions without tensor operations are left alone
        self.captures: list[Capture] = []
        self.entries: dict[int, list[Cached]] = {}
        self.varying: dict[int, set[Origin]] = {}   # for a code object: the numbers, and tensors, that have changed
        self.handed_on: dict[int, set[str]] = {}    # variables whose number differed where a function was left
        self.specialized: dict[int, set[Origin]] = {}   # numbers of which a symbol became a constant, and differed
        self.constant: dict[int, set[Origin]] = {}  # those that the backend needs to be constants
        self.left_to_python: frozenset[Any] = frozenset()   # loops and calls that have no operations for long
        self.read_at_once: frozenset[Any] = frozenset()     # where tensors' values are read that the program looks at
        self.dynamic = dynamic
        self.named: dict[CodeType, dict[str, tuple]] = {}   # what an input_spec says of the sizes of arguments
        self.runs_as_is = True      # does the backend run a graph as it is? until it compiles one with leaves
        self.callback = callback = _hook.Callback(self._callback)
        self.idle = Idle(lambda code: _hook.skip(code, callback))   # functions without tensors
        _translators.add(self)
        weakref.finalize(self, drop_entries, self.entries).atexit = False
        load()

    # ---- the hook's question
    def _callback(self, function: FunctionType, inputs: tuple) -> Callable | None:
        code = function.__code__
        module = str(function.__globals__.get("__name__"))
        if code.co_name in OVERRIDES or runs_at_any_time(code):
            _hook.leave_alone(code)
            return None
        if not is_users(code, module):
            _hook.skip(code)
            return None
        if marks.is_ignored(module) or not self.covers(module):
            _hook.skip(code, self.callback)
            return None
        if in_function_transform() or in_mode():
            return None
        hooked = has_saved_tensors_hooks()
        if hooked and self.graphs.compiles:
            return None
        touch(code)
        with TURNS.turn() as how:
            if how == "waited" and _hook.is_skipped(code, self.callback):
                return None
            if how == "waited" and (entry := self.fitting(code, inputs)) is not None:
                return entry
            return self.capture(function, inputs, hooked) if how else None

    def fitting(self, code: CodeType, inputs: tuple) -> Callable | None:
        """The entry that answers this call: another thread may have made it."""
        return next((c.function for c in self.entries.get(id(code), ()) if c.function.holds(inputs)), None)

    def capture(self, function: FunctionType, inputs: tuple, hooked: bool) -> Callable | None:
        code = function.__code__
        capture = Capture(function.__qualname__, Place(code.co_filename, code.co_firstlineno, code.co_name))
        try:
            with no_saved_tensors_hooks(), recording.capturing():
                state = GlobalState()
                capture.misses = self.explain_misses(code, inputs)
                with without_subclasses():
                    entry = self.translate(function, inputs, capture, state)
            if entry is None or not (hooked and self.graphs.compiles):
                return entry
            self.drop_newest(code)
        except (CaptureError, BackendError):
            raise
        except Skip as e:
            self.note_fallback(capture, e)
            if e.reason is Reason.WATCHES:
                _hook.leave_alone(code)
            if e.reason is Reason.RECAPTURE_LIMIT:
                self.stop_capturing(function, inputs, capture)
            else:
                _hook.skip(code, self.callback)
        except (MemoryError, RecursionError) as e:      # the program is near the limit, or its values are too large
            self.give_up(code, capture, Skip(Reason.DEPTH, type(e).__name__))
        except Exception as e:
            if self.strict:
                raise
            self.give_up(code, capture, Skip(Reason.INTERNAL, f"{type(e).__name__}: {e}"))
        finally:
            self.captures.append(capture)
            log.capture(capture)
            if recording.current is not None:
                recording.current.add(capture)
        return None

    def covers(self, module: str) -> bool:
        """Is it among the modules that this translator is for?"""
        return not is_in(module, self.exclude) and (not self.include or is_in(module, self.include))

    def give_up(self, code: CodeType, capture: Capture, stop: CaptureStop) -> None:
        """Python runs this function from now on."""
        self.note_fallback(capture, stop)
        _hook.skip(code, self.callback)

    def note_fallback(self, capture: Capture, stop: CaptureStop) -> None:
        if self.whole_program and SITE_PACKAGES in capture.place.file and stop.reason is Reason.UNSUPPORTED:
            stop = Skip(Reason.NOTHING_CAPTURED)    # a library's loop around the program: what it calls has its turn
        capture.stopped, capture.fallback = BreakRecord(stop.reason, stop.detail, capture.place), True
        if self.strict and stop.reason is not Reason.NOTHING_CAPTURED:
            raise CaptureError(str(capture.stopped)) from stop

    def stop_capturing(self, function: FunctionType, inputs: tuple, capture: Capture) -> None:
        """There are enough entries: Python runs the function where none of them fits. The user is told."""
        code = function.__code__
        cached = self.same_program(code, inputs)
        if not self.leave_program(function, inputs, cached):
            _hook.skip(code, self.callback)
        if any(c.has_graph for c in cached):
            tell_too_often(code, capture.name, misses(cached, inputs), inputs, len(cached))

    def leave_program(self, function: FunctionType, inputs: tuple, cached: list[Cached]) -> bool:
        """Python runs this program where none of its entries fits; others with the same code are captured as before."""
        code = function.__code__
        guards = list(dict.fromkeys(g for c in cached for g in c.program()))
        if not guards or len(self.entries[id(code)]) >= self.limit.of_code:
            return False
        machine, state = Machine(function, inputs), GlobalState()
        machine.guards = dict.fromkeys(guards, (code.co_filename, code.co_firstlineno))
        entry = plain_entry(machine, code, state, self.callback)
        found = Cached(entry, machine.guards, state)
        machine.release()
        self.entries[id(code)].append(found)
        _hook.set_entries(code, (*_hook.get_entries(code), entry))
        return True

    # ---- the pipeline
    def translate(self, function: FunctionType, inputs: tuple, capture: Capture, state: GlobalState) -> Callable | None:
        code = function.__code__
        if what := watches(code):
            raise Skip(Reason.WATCHES, f"{function.__qualname__} uses {what}, which")
        if self.is_full(code, inputs):
            raise Skip(Reason.RECAPTURE_LIMIT, str(self.limit.of_function))
        self.expect_other_floats(code, inputs)
        varies, keeps_leaves, refused = self.variation(code), self.runs_as_is, dict[Any, str]()
        while True:
            try:
                return self.attempt(Machine(function, inputs, varies, keeps_leaves, self.control_flow, refused,
                                            self.left_to_python, self.read_at_once), state, capture)
            except NumbersVary as e:
                self.varying.setdefault(id(code), set()).update(e.origins)
                varies = self.variation(code)
            except FloatsMustBeConstant as e:
                self.constant.setdefault(id(code), set()).update(e.origins)
                capture.static = "the backend compiles its graph, and would take a float for a constant"
                varies = self.variation(code)
            except ShapesMustBeStatic as e:
                capture.static = str(e)
                varies = STATIC
            except CompilesGraphs:
                self.runs_as_is = keeps_leaves = False
            except Refused as e:
                refused[e.point] = e.why
            except LeftToPython as e:
                self.left_to_python |= e.points
            except NeededNow as e:
                self.read_at_once |= e.points

    def expect_other_floats(self, code: CodeType, inputs: tuple) -> None:
        """A float that a statement has computed before it broke, a loss or a time, is another one at the next call."""
        if not self.constant:       # else they are constants for as long as can be
            rest = origin(code)
            names = self.handed_on.get(id(rest.code), ()) if rest is not None else ()
            found = {Arg(i, name) for i, name in enumerate(code.co_varnames[:code.co_argcount])
                     if type(inputs[i]) is float and (name.startswith(SLOT) or name in names)}
            if found:
                self.varying.setdefault(id(code), set()).update(found)

    def variation(self, code: CodeType) -> Variation:
        """What may differ from call to call in a capture of this code."""
        if self.dynamic is False:
            return STATIC
        varying, constant = (frozenset(found.get(id(code), ())) for found in (self.varying, self.constant))
        return Variation(varying - constant, bool(self.dynamic), self.named.get(code, {}), constant,
                         frozenset() if self.full_graph else frozenset(self.specialized.get(id(code), ())))

    def attempt(self, machine: Machine, state: GlobalState, capture: Capture) -> Callable | None:
        machine.asks_classes = state.asks_subclasses
        try:
            return self.finish(machine.frames[0].native, machine, state, capture)
        finally:
            machine.release()

    def finish(self, code: CodeType, machine: Machine, state: GlobalState, capture: Capture) -> Callable | None:
        with timed(capture, "execute"), quiet(), paused_collector():
            emitter = self.execute(machine, code, capture)
        if machine.varies is not STATIC and (
                counters := machine.changed_numbers() - self.varying.get(id(code), set())):
            raise NumbersVary(counters)
        on_tensors = machine.builder.operations - len(machine.builder.warnings)
        if self.whole_program and on_tensors == 0 and SITE_PACKAGES in code.co_filename:
            raise Skip(Reason.NOTHING_CAPTURED)
        count = self.idle.note(code, on_tensors) if self.whole_program else None
        if count is not None and self.idle.is_over(code):
            raise Skip(Reason.NOTHING_CAPTURED)
        for whole, names in emitter.varying:
            self.handed_on.setdefault(id(whole), set()).update(names)
        machine.guard_distinct()
        machine.prune_guards()
        capture.guards = [GuardRecord(g, *where) for g, where in machine.guards.items()]
        if machine.builder.operations == 0 and capture.stopped is None:
            return self.keep(code, plain_entry(machine, code, state, self.callback, count), machine, state)
        capture.effects = [*map(str, machine.mutated.values()), *("what is printed" for _ in machine.effects[:1])]
        call = self.graphs.call_of(machine, emitter, capture)
        machine.note_assumptions()      # those of the backend
        capture.guards = [GuardRecord(g, *where) for g, where in machine.guards.items()]
        with timed(capture, "emit"):
            if count is not None:
                emitter.tail.insert(0, f"{emitter.const(count)}()")
            if recording.current is not None:
                emitter.tail.insert(0, f"{emitter.const(recording.current.runs_of(capture).count)}()")
            entry, capture.code = make_entry(emitter, machine, code, state, self.callback, call)
        return self.keep(code, entry, machine, state)

    def execute(self, machine: Machine, code: CodeType, capture: Capture) -> Emitter:
        """Run the frame symbolically and write its exit; torch's global state is as before when it returns."""
        try:
            done = machine.run()
            if not isinstance(done, Stopped):
                assert done is not None
                machine.refuse_unclean(going_on=False)
                try:
                    emitter = Emitter(machine)
                    write_exit(emitter, done.value, 0)
                    return emitter
                except NotRebuildable as e:
                    done = Stopped(Break(Reason.UNSUPPORTED, str(e)))
            capture.stopped = describe(machine, done.cause)
            if self.full_graph and done.cause.reason is not Reason.UNCAUGHT:
                raise CaptureError(f"full_graph=True, but capture stops: {capture.stopped}. {capture.stopped.hint}")
            return stop_at(machine, done.cause)
        finally:
            restore_state(machine)

    # ---- the cache
    def drop_newest(self, code: CodeType) -> None:
        """Take back the entry just kept: it saves other tensors for the backward pass than Python does, and a program
        with hooks on these tells the difference."""
        newest = self.entries[id(code)].pop(0).function
        _hook.set_entries(code, tuple(e for e in _hook.get_entries(code) if e is not newest))

    def keep(self, code: CodeType, entry: _hook.Entry, machine: Machine, state: GlobalState) -> _hook.Entry:
        found = Cached(entry, dict(machine.guards), state, machine.builder.operations > 0)
        entry.at_death = functools.partial(drop_dead, id(code))
        self.entries.setdefault(id(code), []).insert(0, found)
        _hook.set_entries(code, (entry, *_hook.get_entries(code)))
        return entry

    def is_full(self, code: CodeType, inputs: tuple) -> bool:
        """Are there enough entries for the program that these inputs ask for?"""
        found, limit = self.entries.get(id(code), []), self.limit
        return len(found) >= limit.of_code or len(found) >= limit.of_function and (
            len(self.same_program(code, inputs)) >= limit.of_function)

    def same_program(self, code: CodeType, inputs: tuple) -> list[Cached]:
        return [c for c in self.entries.get(id(code), ()) if not any(g.explain(inputs) for g in c.program())]

    def explain_misses(self, code: CodeType, inputs: tuple) -> list[Miss]:
        """For each entry of this code, the guard that did not hold; what has changed is a symbol from now on."""
        cached, lengths = self.entries.get(id(code), []), Counter[Origin]()
        for guards in (c.guards for c in cached):
            numbers = (g for g in guards if isinstance(g, ValuesGuard)
                       or isinstance(g, EqualsGuard) and (type(g.value) in (*NUMBER_TYPES, str)
                                                          or isinstance(g.value, NUMPY_SCALARS)))
            varying = self.varying.setdefault(id(code), set())
            varying.update(g.origin for g in numbers if g.explain(inputs))
            for g in guards:
                if isinstance(g, RelationGuard) and g.symbol == "==" and g.explain(inputs):
                    self.specialized.setdefault(id(code), set()).update(leaves(g.left))
            lengths.update(Length(g.origin) for g in guards
                           if isinstance(g, (LengthGuard, ArrayGuard)) and g.explain(inputs))
            varying.update(part for g in guards if isinstance(g, TensorGuard) for part in g.differs(inputs))
        self.varying.setdefault(id(code), set()).update(lengths)
        self.specialized.setdefault(id(code), set()).update(length for length, count in lengths.items() if count > 1)
        return misses(cached, inputs)

    def forget(self) -> None:
        """Drop this translator's entries, and what it knows of code."""
        drop_entries(self.entries)
        for known in (self.entries, self.varying, self.handed_on, self.constant, self.specialized, self.idle):
            known.clear()

    def forget_code(self, key: int) -> None:
        """The same for one code object, which is gone."""
        for known in (self.entries, self.varying, self.handed_on, self.constant, self.specialized):
            known.pop(key, None)
        self.idle.forget(key)


def drop_dead(key: int) -> None:
    """Drop the entries of a code object that name a function or class which is gone."""
    for entries in [t.entries for t in list(_translators) if key in t.entries]:
        dead = [c for c in entries[key] if c.function.is_dead]
        drop_entries({key: dead})
        entries[key] = [c for c in entries[key] if c not in dead]


def drop_entries(entries: dict[int, list[Cached]]) -> None:
    """Have the hook ask none of these any more."""
    for key, cached in list(entries.items()):
        code, mine = _touched[key]() if key in _touched else None, {c.function for c in cached}
        if code is not None:
            _hook.set_entries(code, tuple(e for e in _hook.get_entries(code) if e not in mine))


atexit.register(_hook.close)     # then modules lose their contents, and ours could not answer any more


@functools.cache
def load() -> None:
    """Import what torch imports late, lest it count as the time of a first call, and leave alone what runs once."""
    new_fake_mode()
    HANDLERS[module_tagger()] = lambda m, args, kwargs: NONE
    _hook.leave_alone(LazyModuleMixin._infer_parameters.__code__)


def is_in(module: str, modules: tuple[str, ...]) -> bool:
    """Is a module, by its dotted name, one of these or inside of one?"""
    return any(module == name or module.startswith(f"{name}.") for name in modules)


def reset() -> None:
    """Drop every entry of every translator, and forget which functions Python runs."""
    for code in [reference() for reference in _touched.values()]:
        if code is not None:
            _hook.reset(code)
    _touched.clear()
    for translator in list(_translators):
        translator.forget()
        translator.captures.clear()


# ---- parts of the pipeline --------------------------------------------------------------------------------
def stop_at(machine: Machine, cause: Break) -> Emitter:
    """Write the exit at a break, as deep in the calls as frames can be resumed."""
    reason, top = cause, len(machine.frames) - 1
    for depth in range(resumable_depth(machine), -1, -1):
        machine.rollback(depth)
        machine.refuse_unclean(going_on=True)
        emitter = Emitter(machine)
        emitter.leaves_alone = cause.reason is Reason.WATCHES
        try:
            write_exit(emitter, None, depth, cause.loop if depth == top else None)
            return emitter
        except NotRebuildable as e:
            reason = Break(Reason.UNSUPPORTED, str(e))
    raise Skip(reason.reason, reason.detail)


def resumable_depth(machine: Machine) -> int:
    """How many calls deep a break can stay: not in a generator, not in code of ours or below a transform."""
    for i, frame in enumerate(machine.frames[1:], 1):
        if not frame.resumable or frame.mark is None or frame.native.co_filename.startswith((OURS, TRANSFORMS)):
            return i - 1
    return len(machine.frames) - 1


def restore_state(machine: Machine) -> None:
    log_ = list(machine.state_log)
    while machine.state_log:
        machine.undo_state()
    machine.state_log = log_


def plain_entry(machine: Machine, code: CodeType, state: GlobalState, callback: Any,
                count: Callable[[], None] | None = None) -> _hook.Entry:
    """The entry of a frame in which there is nothing to capture: Python runs it while the guards hold."""
    emitter = Emitter(machine)
    if count is not None:
        emitter.line(f"{emitter.const(count)}()")
    emitter.line("return PLAIN")
    return make_entry(emitter, machine, code, state, callback, GraphCall())[0]


def describe(machine: Machine, cause: Break) -> BreakRecord:
    """The record of a break, with the user's stack at it."""
    stack = tuple(Place(f.native.co_filename, f.line, f.native.co_name) for f in machine.frames
                  if not f.native.co_filename.startswith(OURS))
    return BreakRecord(cause.reason, cause.detail, stack[-1], stack)


@contextmanager
def paused_collector() -> Iterator[None]:
    """Capture makes many objects and little garbage: collecting in between costs a fifth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


__all__ = ["Translator", "reset", "is_library"]
