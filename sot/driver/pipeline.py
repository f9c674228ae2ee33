"""The pipeline from a call of a function to the entry that answers the next call like it.

    code object -> instructions -> trace -> graph -> compiled graph -> guards -> guard program -> entry

``translate`` runs all steps. Each step takes the values that earlier steps returned and returns a value. The steps
share no other state.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType, FunctionType

from sot import _hook
from sot.bytecode import decode
from sot.bytecode.code_table import CodeTable
from sot.bytecode.resume_origin import whole_code
from sot.codegen.build_graph import build_graph
from sot.codegen.compile_graph import GraphCompiler
from sot.codegen.compiled_graphs.failing_guesses import Watch
from sot.codegen.entry import make_entry
from sot.codegen.exit import Exit, write_exit
from sot.codegen.graph_call import call_of
from sot.codegen.guard_trace import guards_of
from sot.driver.capture_policy import Policy
from sot.driver.code_state import CachedEntry, CodeState
from sot.driver.exits import executed
from sot.driver.stages import stages_of
from sot.guards.assumptions import Assumptions, Part, from_arguments
from sot.guards.guard_program import GuardProgram
from sot.guards.guards import EqualsGuard, Guard
from sot.guards.origin import Inputs, Item
from sot.interpreter.objects.optimizers import is_first_step
from sot.interpreter.torch_ops.data_sizes.graph_numbers import Guess
from sot.interpreter.trace import Line, Trace, undoes_its_guards
from sot.reports import recording
from sot.reports.records import Capture, GuardRecord, RecompileReason
from sot.support.errors import OnlyNow, Reason, Skip
from sot.support.places import is_installed
from sot.torch_compat.global_state import GlobalState

# A function that reads more values than this from its arguments, and has fewer operations for each, makes tensors of
# records (a collate function). Its next call gets other records, which the guards on these values refuse.
MOST_VALUES = 64
OPERATIONS_PER_VALUE = 2
BREAKS_WITHOUT_OPERATIONS = 6       # ``main`` may break before it trains
# Calls that are left to Python because no later call is like them: the first call makes gradients; where gradients
# are accumulated, a later one makes the state of the optimizer.
MOST_LEFT = 2


@dataclass(frozen=True)
class Call:
    """A call of a function that no entry answers.

    Arguments:
        function: the called function.
        inputs: its arguments, and the cells of its closure.
        state: torch's global state at the call.
        record: the record of the capture for reports.
    """

    function: FunctionType
    inputs: Inputs
    state: GlobalState
    record: Capture

    @property
    def code(self) -> CodeType:
        return self.function.__code__


@dataclass(frozen=True)
class Tools:
    """What a translator uses for every capture.

    Arguments:
        compiler: the backend.
        states: the state of each code object.
        callback: what the hook calls when no entry fits.
        learn: adds assumptions for later captures of a code object.
        policy: decides what is worth a capture, when a whole program is translated.
        full_graph: whether a break is an error.
        shows_stages: whether records get the intermediate form of each step as text.
        leaves_first_calls: whether calls that no later call is like are left to Python. Their graphs would be compiled
            for one call each.
        write_exit: emits the exit of a trace.
    """

    compiler: GraphCompiler
    states: CodeTable[CodeState]
    callback: _hook.Callback
    learn: Callable[[CodeType, Assumptions], None]
    policy: Policy | None
    full_graph: bool
    shows_stages: bool = False
    leaves_first_calls: bool = False
    write_exit: Callable[[Trace], Exit] = write_exit


def translate(call: Call, assumptions: Assumptions, tools: Tools) -> _hook.Entry:
    """The entry for this call and calls like it. The hook asks the entry from now on.

    Raises RestartCapture if an assumption is wrong, Skip if Python must run the function, CaptureError at a break of a
    ``full_graph``, and BackendError.
    """
    code, record = call.code, call.record
    of_whole = tools.states.of(whole_code(code))    # what follows a break is not left once more
    if tools.leaves_first_calls and not of_whole.left and is_first_step(call.function, call.inputs):
        leave_first_call(of_whole)
    instructions = decode(code)
    with executed(call.function, instructions, call.inputs, call.state, assumptions, record,
                  tools.full_graph, tools.write_exit) as (trace, exit):
        operations = trace.operations - len(trace.graph.warnings)   # NumPy operations alone do not justify a capture
        of_whole.has_operations = of_whole.has_operations or operations > 0
        if tools.policy is not None:
            refuse_poor(call, trace, operations, tools, tools.policy)
        if tools.leaves_first_calls and undoes_its_guards(trace):
            leave_first_call(of_whole)
        graph = build_graph(trace, exit.outputs, record.name)
        compiled = tools.compiler.compile(graph, record) if graph is not None else None
        watch = Watch(compiled.call, trace.guesses) if compiled and trace.guesses and not tools.full_graph else None
        if compiled and watch:
            compiled = replace(compiled, call=watch.call)
        guards = guards_of(trace, graph, compiled)
        with record.timed("emit"):
            program = GuardProgram(trace.inputs, guards, trace.examples)
            graph_call = call_of(trace, exit, graph, compiled)
            entry, source = make_entry(code, program, graph_call, exit, call.state, tools.callback)
        if recording.current is not None and not exit.is_plain:
            entry.clock = recording.current.runs_of(record).after
        note(record, trace, exit, guards, source)
        if tools.shows_stages:
            record.stages = stages_of(instructions, trace, graph, guards, program, source)
    for whole, names in exit.handed_on:
        tools.states.of(whole).handed_on |= names
    cached = CachedEntry(entry, dict(guards), call.state, graph is not None)
    if watch:
        watch.give_up = partial(give_up, weakref.ref(code), tools, cached)
    return tools.states.of(code).keep(cached)


def give_up(reference: weakref.ref[CodeType], tools: Tools, cached: CachedEntry, guess: Guess, why: str) -> None:
    """Drop an entry whose graph fails because of a guess. The next capture makes no such guess."""
    code = reference()
    if code is None:
        return
    state = tools.states.of(code)
    state.drop([cached])
    state.given_up.append(RecompileReason(why, None, *guess.line))
    tools.learn(code, Assumptions(read_at_once=guess.points, plain={} if guess.points else {Part.SIZES: why}))


def leave_first_call(state: CodeState) -> None:
    """Leave the call to Python, unless that has happened too often for this code."""
    state.left += 1
    if state.left <= MOST_LEFT:
        raise OnlyNow(Reason.FIRST_CALL)


def refuse_poor(call: Call, trace: Trace, operations: int, tools: Tools, policy: Policy) -> None:
    """Raise Skip if the entry gains nothing. Its operations and breaks are known now."""
    whole = whole_code(call.code)
    state = tools.states.of(whole)
    state.breaks += call.record.stopped is not None
    if not state.has_operations and state.breaks > BREAKS_WITHOUT_OPERATIONS:
        _hook.skip(whole, tools.callback)
    if operations == 0 and (call.record.stopped is None or state.breaks > BREAKS_WITHOUT_OPERATIONS):
        raise Skip(Reason.NOTHING_CAPTURED)
    values = values_of_items(trace.guards)
    if not policy.takes_all and values > max(MOST_VALUES, operations // OPERATIONS_PER_VALUE):
        raise Skip(Reason.VARYING_NUMBER, f"{values} items of its arguments")
    if operations == 0 and is_installed(call.code.co_filename) or not policy.may_break(whole, state.breaks):
        raise Skip(Reason.NOTHING_CAPTURED)


def values_of_items(guards: Mapping[Guard, Line]) -> int:
    """How many guards are on values in lists and other containers that the call was given."""
    return sum(isinstance(guard, EqualsGuard) and isinstance(guard.origin, Item) and from_arguments(guard.origin)
               for guard in guards)


def note(record: Capture, trace: Trace, exit: Exit, guards: Mapping[Guard, Line], source: str) -> None:
    """Fill the record with the results of a capture."""
    record.guards = [GuardRecord(guard, *line) for guard, line in guards.items()]
    if not exit.is_plain:
        record.effects = [*map(str, trace.mutated), *("printed output" for _ in trace.effects[:1])]
        record.code = source
