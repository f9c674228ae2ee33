"""``Translator`` captures translated functions: the hook calls ``Translator.callback`` when no entry fits a call.

On any failure Python runs the frame unchanged, and the reason is recorded. In strict mode internal failures are raised;
what capture leaves to Python on purpose is none.
"""
from __future__ import annotations

import atexit
import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from types import CodeType, FunctionType

from torch.nn.modules.lazy import LazyModuleMixin

from sot import _hook
from sot.backends import Backend, BackendError
from sot.backends.selection import is_known_to_compile, is_known_to_interpret
from sot.bytecode.code_table import CodeTable
from sot.bytecode.frame_layout import SLOT
from sot.bytecode.resume_origin import origin, whole_code
from sot.codegen.compile_graph import GraphCompiler
from sot.codegen.exit import Exit, write_exit
from sot.driver import recompile_limit
from sot.driver.capture_policy import Policy, work_of
from sot.driver.code_state import CodeState, new_state
from sot.driver.orphans import Owners
from sot.driver.pipeline import Call, Tools, translate
from sot.driver.plain_libraries import PlainLibraries
from sot.driver.recompile_reasons import Read, has_varying_identity, learnt_from, read, reasons
from sot.driver.scope import EVERYTHING, Scope
from sot.driver.whole_program import WholeProgram
from sot.guards.assumptions import Assumptions, Part, RestartCapture
from sot.guards.origin import Arg, Inputs
from sot.interpreter.effects.shown_warnings import remembered
from sot.interpreter.torch_ops.hooks.changing_hooks import may_change_what_is_read
from sot.interpreter.trace import Trace
from sot.interpreter.watchers import line_of_watch, watches
from sot.reports import log, recording
from sot.reports.records import Capture
from sot.support import settings
from sot.support.capture_lock import TURNS
from sot.support.collector import paused_collector, rare_collections
from sot.support.errors import CaptureError, CaptureStop, LeftAlone, OnlyNow, Reason, Skip, described
from sot.support.own_code import builtins_are_replaced
from sot.support.places import Place, is_installed
from sot.support.random_states import kept_random_states
from sot.support.registry import HANDLERS
from sot.support.tracebacks import ends_here
from sot.torch_compat.callables import torch_compiles
from sot.torch_compat.fake_tensors import new_fake_mode
from sot.torch_compat.global_state import Before, GlobalState, in_function_transform, in_mode, in_tracer
from sot.torch_compat.hooks import has_saved_tensors_hooks, module_tagger, no_saved_tensors_hooks
from sot.torch_compat.tensors import without_subclasses
from sot.values.base import NONE

_translators: weakref.WeakSet[Translator] = weakref.WeakSet()
_touched: CodeTable[None] = CodeTable(lambda code: None)      # code that any translator has worked on


class Translator:
    """Captures the functions that are called while its callback is set.

    Arguments:
        backend: compiles the graphs.
        full_graph: whether a break or fallback is an error. It implies ``control_flow``.
        strict: whether internal failures are errors. None means SOT_STRICT.
        dynamic: as for to_static.
        control_flow: whether branches on tensors become part of the graph.
        check: the share of calls that are compared with plain Python.
        data_sizes: whether operations with sizes and numbers that depend on data become part of the graph.
        program: the whole program that this translator is for, or None. It decides what is worth a capture.
        scope: the modules that it is for.
        shows_stages: whether records of captures contain the intermediate form of each step as text.
        takes_first_calls: whether a call is compiled although no later call is like it.
        exits: emits the exits of traces.
        whole_graphs: whether the backend gets each graph as one.
    """

    def __init__(self, backend: Backend, *, full_graph: bool = False, strict: bool | None = None,
                 dynamic: bool | None = None, control_flow: bool = False, check: float = 0.0, data_sizes: bool = True,
                 program: WholeProgram | None = None, scope: Scope = EVERYTHING,
                 shows_stages: bool = False, takes_first_calls: bool = False,
                 exits: Callable[[Trace], Exit] = write_exit, whole_graphs: bool = False) -> None:
        self.full_graph, self.program, self.scope = full_graph, program, scope
        self.strict = settings.is_on("SOT_STRICT", False) if strict is None else strict
        self.compiler = GraphCompiler(backend, check, self.strict, cuts=not whole_graphs)
        settings.check_settings()
        self.limit = settings.entries()
        self.settings = Assumptions(everything=dynamic is True, static=dynamic is False,
                                    control_flow=control_flow or full_graph,
                                    plain=left_to_python(backend, data_sizes, whole_graphs),
                                    interprets=is_known_to_interpret(backend))
        self.learnt = Assumptions()                     # holds for all code
        self.named: dict[CodeType, dict[str, tuple]] = {}   # sizes of arguments that an input_spec names
        self.states = CodeTable(new_state)
        self.captures: list[Capture] = []
        self.most_records = 256     # of a whole program; then records of freed code are dropped
        self.owners, self.libraries = Owners(), PlainLibraries()
        self.callback = program.callback if program is not None else _hook.Callback(self._callback)
        policy = program.policy if program is not None else None
        self.tools = Tools(
            self.compiler, self.states, self.callback, self.learn, policy, full_graph, shows_stages,
            is_known_to_compile(backend) and not (takes_first_calls or full_graph), exits)
        _translators.add(self)
        weakref.finalize(self, drop_entries, self.states).atexit = False
        load()

    # ---- the call from the hook
    def _callback(self, function: FunctionType, inputs: Inputs) -> Callable | _hook.Sentinel | None:
        """The entry for a call, or None if Python must run it."""
        if builtins_are_replaced():
            return None
        code = function.__code__
        if self.scope.leaves_alone(code, str(function.__globals__.get("__name__")), self.callback):
            return None
        try:
            return self.answer(function, inputs)
        except (CaptureError, BackendError) as e:
            raise ends_here(e) from None

    def answer(self, function: FunctionType, inputs: Inputs) -> Callable | _hook.Sentinel | None:
        """The entry for a call of a function in scope, or None if Python must run it."""
        code = function.__code__
        if in_function_transform() or in_mode() or in_tracer():
            return None
        if (hooked := has_saved_tensors_hooks()) and (
                self.compiler.compiles or may_change_what_is_read(function, inputs)):
            return None
        _touched.of(code)
        before = Before()
        set_back = functools.partial(set_all_back, before, TURNS.is_mine())
        return _hook.undisturbed(set_back, self.take_turn, before, function, inputs, hooked)

    def take_turn(self, before: Before, function: FunctionType, inputs: Inputs,
                  hooked: bool) -> Callable | _hook.Sentinel | None:
        """Like ``answer``, once the thread holds the capture lock. ``answer`` releases the lock."""
        code = function.__code__
        how = TURNS.take()
        if how:
            before.read_shared()
        if how == "waited" and _hook.is_skipped(code, self.callback):
            return None
        if how == "waited" and (entry := self.states.of(code).fitting(inputs)) is not None:
            return entry        # another thread has made it in the meantime
        if not how or self.program is not None and not self.pays_again(self.program.policy, code):
            return None
        if self.program is None and self.libraries.leaves(function, inputs):
            for left in (code, whole_code(code)):
                _hook.skip(left, self.callback)
            return None
        if threading.get_ident() != threading.main_thread().ident:      # only that one handles signals
            return self.capture(function, inputs, hooked)
        return _hook.without_signals(self.capture, function, inputs, hooked)

    def pays_again(self, policy: Policy, code: CodeType) -> bool:
        """Whether code of a whole program is captured again when no entry fits."""
        state, calls = self.states.of(code), work_of(code).calls
        if state.entries and not policy.may_recapture(code, state.captures, calls + 1 - state.calls_before):
            return False
        state.calls_before = calls
        return True

    def capture(self, function: FunctionType, inputs: Inputs, hooked: bool) -> Callable | _hook.Sentinel | None:
        """Capture a call. ``hooked``: whether the program has hooks on the tensors that autograd saves."""
        code = function.__code__
        if self.program is not None and self.owners.note(function):
            self.drop_orphans()
        record = Capture(function.__qualname__, Place(code.co_filename, code.co_firstlineno, code.co_name))
        self.states.of(code).captures += 1
        try:
            with (no_saved_tensors_hooks(), recording.capturing(record), self.spending(code), paused(self.compiler),
                  remembered()):
                call = Call(function, inputs, GlobalState(), record)
                self.learn_from_failures(call)
                with without_subclasses():
                    entry = self.translate(call)
            if not (hooked and self.compiler.compiles):
                return entry
            # The graph saves different tensors for the backward pass than Python does. Hooks on saved tensors would
            # show that.
            state = self.states.of(code)
            state.drop(state.entries[:1])
        except (CaptureError, BackendError):
            raise
        except OnlyNow as stop:
            record.left_to_python(stop.reason, stop.detail)
            return _hook.PLAIN_INSIDE
        except Skip as stop:
            self.leave_to_python(function, inputs, record, stop)
        except (MemoryError, RecursionError) as e:      # the program is near the limit, or its values are too large
            self.leave_to_python(function, inputs, record, Skip(Reason.DEPTH, type(e).__name__))
        except Exception as e:
            if self.strict:
                raise
            self.leave_to_python(function, inputs, record, Skip(Reason.INTERNAL, described(e)))
        finally:
            self.keep_record(code, record)
            self.libraries.note(function, inputs, record, self.states.of(whole_code(code)).has_operations)
            log.capture(record)
            if recording.current is not None:
                recording.current.add(record)
        return None

    def keep_record(self, code: CodeType, record: Capture) -> None:
        """Keep a record with its capture. A whole program makes functions and drops them, so it keeps the records of
        living code and a limited number of others.
        """
        self.captures.append(record)
        if self.program is None:
            return
        self.states.of(code).records.append(record)
        if record.graph is not None:
            self.program.policy.compiled(record.seconds.get("backend", 0.0), record.graph.operations)
        if len(self.captures) >= self.most_records:
            self.drop_records()
            self.most_records = max(self.most_records, 2 * len(self.captures))

    def drop_records(self) -> None:
        """Drop the records of freed code of a whole program."""
        living = {id(record) for state in self.states for record in state.records}
        self.captures[:] = [record for record in self.captures if id(record) in living]

    def drop_orphans(self) -> None:
        """Drop what is known of a whole program's functions that only their own entries keep alive."""
        places = {id(record): i for i, record in enumerate(self.captures)}
        lent = {id(record) for code in self.owners.of_code.codes() for record in self.states.of(code).records}
        self.captures[:] = [record for record in self.captures if id(record) not in lent]
        self.owners.collect(self.states)
        self.captures += (record for state in self.states for record in state.records if id(record) in lent)
        self.captures.sort(key=lambda record: places.get(id(record), len(places)))

    def spending(self, code: CodeType) -> AbstractContextManager[None]:
        """A context whose time is charged to the program's budget, if it has one. ``code`` is what is captured."""
        return self.program.policy.spending(code) if self.program is not None else nullcontext()

    def translate(self, call: Call) -> Callable:
        """The entry for a call. An attempt that finds a wrong assumption is followed by one with more assumptions."""
        refuse_watcher(call)
        if recompile_limit.is_reached(self.states.of(call.code), call.inputs, self.limit):
            raise Skip(Reason.RECOMPILE_LIMIT, str(self.limit.of_function))
        self.expect_other_floats(call)
        assumptions, in_vain = self.assumptions(call.code), 0
        while True:
            try:
                return translate(call, assumptions, self.tools)
            except RestartCapture as restart:
                self.learn(call.code, restart.learnt)
                before, assumptions = assumptions, assumptions | restart.learnt
                in_vain = in_vain + 1 if assumptions == before else 0
                if in_vain > 1:     # one more attempt would end like the last two
                    raise Skip(Reason.UNSUPPORTED, str(restart)) from None
                import_parts(restart.learnt.imported)
                call.record.start_again(str(restart) if restart.learnt.static or restart.learnt.constant else "")

    # ---- what is known from earlier captures
    def assumptions(self, code: CodeType) -> Assumptions:
        """The assumptions at the start of a capture of this code."""
        named = Assumptions(named=self.named.get(code, {}))
        return self.settings | named | self.learnt | self.states.of(code).learnt

    def learn(self, code: CodeType, learnt: Assumptions) -> None:
        """Add assumptions for later captures."""
        self.learnt |= learnt.of_program
        self.states.of(code).learnt |= learnt.of_code

    def learn_from_failures(self, call: Call) -> None:
        """Record the failed guard of each entry of the code. The values that changed become symbols."""
        entries = read(self.states.of(call.code).entries, call.inputs)
        learnt = learnt_from(entries, call.inputs)
        self.learn(call.code, replace(learnt, specialized=frozenset()) if self.full_graph else learnt)
        given_up = self.states.of(call.code).given_up
        call.record.recompile_reasons = [*given_up, *reasons(entries, call.inputs, call.code)]
        given_up.clear()
        leave_varying_piece(self, call, entries)

    def expect_other_floats(self, call: Call) -> None:
        """Treat floats that a statement computed before a break as varying. A loss or a time differs at every call."""
        if any(state.learnt.constant for state in self.states):
            return      # the backend specialises on floats: they stay constants as long as possible
        code, rest = call.code, origin(call.code)
        names = self.states.of(rest.code).handed_on if rest is not None else ()
        found = {Arg(i, name) for i, name in enumerate(code.co_varnames[:code.co_argcount])
                 if type(call.inputs[i]) is float and (name.startswith(SLOT) or name in names)}
        if found:
            self.learn(code, Assumptions(varying=frozenset(found)))

    def forget(self) -> None:
        """Drop the entries of this translator, and its state of code objects."""
        drop_entries(self.states)
        self.states.clear()

    # ---- fallbacks
    def leave_to_python(self, function: FunctionType, inputs: Inputs, record: Capture, stop: CaptureStop) -> None:
        """Let Python run this function from now on, and record why. Raises CaptureError if it must be one graph."""
        code = function.__code__
        if self.program is not None and is_installed(record.place.file) and stop.reason is Reason.UNSUPPORTED:
            stop = Skip(Reason.NOTHING_CAPTURED)    # a library's loop around the program; its callees come later
        record.left_to_python(stop.reason, stop.detail)
        if self.program is not None:
            self.program.policy.leave(code, str(stop))
        if self.full_graph:
            refuse_fallback(record, stop)
        if stop.reason is Reason.WATCHES or isinstance(stop, LeftAlone):
            _hook.leave_alone(code)
        if stop.reason is Reason.RECOMPILE_LIMIT:
            stop_capturing(self, code, inputs, record)
        else:
            _hook.skip(code, self.callback)


def refuse_watcher(call: Call) -> None:
    """Raises Skip for a function that inspects the interpreter."""
    if what := watches(call.code):
        call.record.reached = (Place(call.code.co_filename, line_of_watch(call.code), call.code.co_name),)
        raise Skip(Reason.WATCHES, f"{call.function.__qualname__} uses {what}, which")


def refuse_fallback(record: Capture, stop: CaptureStop) -> None:
    """Raises CaptureError where Python would run the whole function, unless it has no tensor operation, or raises."""
    if stop.reason not in (Reason.NOTHING_CAPTURED, Reason.UNCAUGHT):
        raise CaptureError(f"full_graph=True, but Python runs {record.name}: {record.stopped}. "
                           f"{stop.reason.hint}") from stop


def leave_varying_piece(translator: Translator, call: Call, entries: Iterable[Read]) -> None:
    """Let Python run what follows a break, if other parts of what it works on are one object at each call. If the
    break was in a callee, its caller is captured again, with a break at the call.
    """
    if not has_varying_identity(entries, call.inputs):
        return
    known, text = origin(call.code), "a structure of which other parts are one object at each call"
    if known is None or known.next_pc is None or (known.code, known.pc) in translator.learnt.varying_calls:
        raise Skip(Reason.OPAQUE_VALUE, text)
    translator.learn(call.code, Assumptions(varying_calls=frozenset({(known.code, known.pc)})))
    for state in translator.states:
        code = state.code()
        if code is not None and whole_code(code) is known.code:
            state.drop(state.entries)
    raise OnlyNow(Reason.OPAQUE_VALUE, text)


def stop_capturing(translator: Translator, code: CodeType, inputs: Inputs, record: Capture) -> None:
    """Stop capturing a function that has enough entries. Python runs calls that none fits, and a warning says so."""
    state = translator.states.of(code)
    entries = state.same_program(inputs)
    if not recompile_limit.leave_program(state, code, inputs, translator.callback, translator.limit):
        _hook.skip(code, translator.callback)
    if any(entry.has_graph for entry in entries):
        recompile_limit.warn(code, record.name, reasons(read(entries, inputs), inputs, code), inputs, entries)


def paused(compiler: GraphCompiler) -> AbstractContextManager[None]:
    """A context without the cyclic collector, for a whole capture: if it runs before a capture has dropped its objects,
    it counts them as old, and soon looks at the whole process. A backend that compiles makes garbage, so there the
    collector runs now and then.
    """
    return rare_collections() if compiler.compiles else paused_collector()


def set_all_back(before: Before, mine: bool) -> None:
    """Restore torch's state and the capture lock after a capture, however it ended."""
    before.restore()
    if not mine:
        TURNS.give_up()


def import_parts(wanted: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Import modules that the program is about to import. A failure is ignored, because Python will raise it again."""
    for name, names in wanted:
        with suppress(Exception):
            __import__(name, fromlist=names)


def left_to_python(backend: Backend, data_sizes: bool, whole_graphs: bool) -> dict[Part, str]:
    """The parts of programs that are not captured for a backend, with no reason to show."""
    parts = ((Part.SIZES, not data_sizes), (Part.EMPTY, whole_graphs),
             (Part.BRANCHES, whole_graphs or is_known_to_compile(backend)))
    return {part: "" for part, is_plain in parts if is_plain}


def drop_entries(states: CodeTable[CodeState]) -> None:
    """Remove all these entries from the hook."""
    for state in states:
        state.drop(state.entries)


atexit.register(_hook.close)     # at exit modules lose their contents, and the callback could not run


@functools.cache
def load() -> None:
    """Import what torch imports late, so that it is not part of the first call, and skip code that runs only once."""
    with kept_random_states():
        new_fake_mode()
    _hook.step_aside_for(torch_compiles)
    HANDLERS[module_tagger()] = lambda m, args, kwargs: NONE
    _hook.leave_alone(LazyModuleMixin._infer_parameters.__code__)


def reset() -> None:
    """Drop every entry of every translator, and forget which functions are left to Python."""
    for code in _touched.codes():
        _hook.reset(code)
    _touched.clear()
    for translator in list(_translators):
        translator.forget()
        translator.captures.clear()
