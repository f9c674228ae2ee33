"""From the two halves of an emitted function to the entry that the hook asks.

What the guard program can check and load, C does, and calls the graph too if nothing is left to Python before it.
The rest stays in the emitted function, which gets what C has loaded as arguments behind the frame's own, and the
graph's results as the last of them. An entry whose result is one of the graph's has no function at all.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType
from typing import Any

import torch

from sot import _hook
from sot.backends import BackendError, BackendWarning
from sot.emit import BUILT_IN, Emitter
from sot.errors import Reason, Skip
from sot.execute.machine import Machine, argument_count
from sot.execute.tensor_hooks import remove_places
from sot.graph import GeneratorRef
from sot.guards import Guard
from sot.origin import Origin
from sot.program import Builder
from sot.tensor_guards import TensorGuard
from sot.torch_compat import (
    NO_MODES,
    REGIONS,
    STATE_SETTERS,
    GlobalState,
    StateLog,
    autocast_nesting,
    is_users_stop,
    leave_regions,
    nest_autocast,
    net_states,
    random_state,
    set_random_state,
    versions,
)

STOP = "<stop>"
Plain = type(_hook.plain(len))
WORD = re.compile(r"\w+")
NAMED = (FunctionType, BuiltinFunctionType, MethodDescriptorType, CodeType, type)
PRINTED = (int, float, str, bytes, bool, complex)


class Changes:
    """What a graph does to its surroundings before it may fail."""

    def __init__(self, machine: Machine) -> None:
        builder = machine.builder
        self.inputs = [machine.input_origins[id(ref)] for ref in builder.changed_inputs()]
        self.traceless = builder.changes_traceless
        self.hooks = machine.hooked
        self.generators = [machine.input_origins[id(ref)] for ref in builder.inputs if isinstance(ref, GeneratorRef)]
        self.refuses = builder.refuses
        # Any graph may run out of memory; but on a GPU it takes long to ask for the state.
        self.keeps_random = builder.draws_then_refuses or (
            builder.fake_mode.draws and not torch.cuda.is_initialized())


@dataclass
class GraphCall:
    """The call of the graph. If it raises and has changed nothing, Python runs the frame from the start.

    ``before`` are the lines before the call, ``failed`` those that handle ``error``: STOP in them lets it through.
    Without a graph there are only the lines ``before``.
    """

    compiled: Callable | None = None
    inputs: list[Origin] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def places(self) -> list[Origin] | None:
        """The inputs, if nothing but the call itself is to be done before the graph has run."""
        return self.inputs if self.compiled is not None and not self.before else None

    def names(self, e: Emitter) -> str:
        return "".join(name + ", " for _, name in e.outputs.values())

    def lines(self, e: Emitter) -> list[str]:
        """The call in Python."""
        if self.compiled is None:
            return self.before
        arguments = ", ".join(map(e.ref, self.inputs))
        call = f"{e.const(_hook.plain(self.compiled))}({arguments})"
        line = f"{names}= {call}" if (names := self.names(e)) else call
        if self.failed[1:] == [STOP]:
            return [*self.before, line]
        failed = [f"    {text.replace(STOP, 'raise')}" for text in self.failed]
        return [*self.before, "try:", f"    {line}", "except Exception as error:", *failed]

    def recover(self, e: Emitter, code: CodeType) -> FunctionType | None:
        """What C asks when the graph has raised: it answers PLAIN, or None for the exception to go on."""
        if self.failed[1:] == [STOP]:
            return None
        failed = "".join(f"    {text.replace(STOP, 'return None')}\n" for text in self.failed)
        return compiled_function(f"def recover(error):\n{failed}", "recover", e.names, code)


def goes_on(error: Exception) -> bool:
    """Is it for the program to see, whatever Python would do with the frame?"""
    return isinstance(error, (BackendError, BackendWarning)) or is_users_stop(error)


def turns_grad_on(log: StateLog) -> bool:
    """Does a trace that begins under ``no_grad`` leave that?"""
    return not torch.is_grad_enabled() and any(
        setter is torch._C._set_grad_enabled and values == (True,) != undo for setter, values, (_, undo) in log)


def leaving_states(compiled: Callable, log: StateLog, grad: bool) -> Callable:
    """The compiled graph of a trace that sets states of torch.

    Whoever compiles a graph sets its states while compiling, but what comes of it sets none, or only some. Here they
    are as before when it has run, and then what the trace leaves is set. ``grad``: it is to begin with gradients on,
    though they are off (``turns_grad_on``).
    """
    states = net_states(log)
    if not (states or grad) or any(setter in REGIONS for setter, _, _ in log):
        return compiled
    setters = {(setter, *values[:-1]): (setter, values) for setter, values, _ in log if setter in STATE_SETTERS}

    def call(*args: Any) -> Any:
        before = [(setter, STATE_SETTERS[setter](*values)) for setter, values in setters.values()]
        nesting = autocast_nesting()
        try:
            if grad:
                torch._C._set_grad_enabled(True)
            results = compiled(*args)
        finally:
            for setter, values in before:
                setter(*values)
            nest_autocast(nesting)
        for setter, values in states:
            setter(*values)
        return results
    return call


def write_graph_call(e: Emitter, compiled: Callable, inputs: list[Origin], state_log: StateLog,
                     changes: Changes) -> GraphCall:
    call = GraphCall(compiled, inputs, [], [f"if {e.const(goes_on)}(error): {STOP}"])
    if any(setter in REGIONS for setter, _, _ in state_log):
        call.failed.append(f"{e.const(leave_regions)}()")
    if changes.hooks:
        call.failed.append(f"{e.const(remove_places)}()")
    call.failed += [f"{e.const(setter)}(*{e.const(args)})" for _, _, (setter, args) in reversed(state_log)
                    if setter in STATE_SETTERS]
    again = not changes.traceless and (changes.refuses or not changes.inputs)
    if again and changes.inputs:
        now = f"{e.const(versions)}({', '.join(e.ref(origin) for origin in changes.inputs)})"
        call.before.append(f"before = {now}")
        call.failed.append(f"if before != {now}: {STOP}")
    if again and changes.keeps_random:
        generators = [*map(e.ref, changes.generators)]
        call.before.append(f"random = {e.const(random_state)}({', '.join(generators)})")
        call.failed.append(f"{e.const(set_random_state)}({', '.join(['random', *generators])})")
    call.failed.append("return PLAIN" if again else STOP)
    return call


# ---- the entry --------------------------------------------------------------------------------------------
def make_entry(e: Emitter, machine: Machine, code: CodeType, state: GlobalState, callback: Any, graph: GraphCall,
               ) -> tuple[_hook.Entry, str]:
    """The entry of a finished trace, and its source."""
    builder, guards = Builder(machine.inputs), [*machine.guards]
    tensors = [g for g in guards if isinstance(g, TensorGuard)]
    left: list[Guard] = [g for g in guards if not isinstance(g, TensorGuard) and not builder.add(g)]
    if not builder.add_tensors(tensors, machine.examples):
        left += tensors
    places = graph.places()
    direct = places is not None and not left and all(builder.has(o) for o in (*places, *e.wanted()))
    if direct:
        names = graph.names(e)
        call = [f"{names}= results"] if names else []
    else:
        call = graph.lines(e)
    given = e.write_walk(left, machine.examples, builder)
    function, source = assemble(e, code, call, [*given, *["results"] * direct])
    source = "".join(f"# {line}\n" for line in legend(e, code, source, direct)) + source
    answer, index = shortcut(e) if not e.walk else (None, -1)
    if answer is None and index >= 0 and not direct:
        index = -1
    questions = ((state.check, True), *NO_MODES)
    outputs = tuple(builder.node(origin) for origin in given.values())
    inputs = tuple(builder.node(origin) for origin in places or ()) if direct else ()
    nodes, pairs, groups = builder.finish()
    entry = _hook.Entry(
        nodes, pairs, groups, questions, callback, function if answer is None and index < 0 else None,
        tuple(n.index for n in outputs), graph.compiled if direct else None, tuple(n.index for n in inputs),
        graph.recover(e, code) if direct else None, len(e.outputs), index, answer, code, bool(e.leaves))
    return entry, source


def shortcut(e: Emitter) -> tuple[Any, int]:
    """The answer of an entry that does nothing, or which result of the graph it returns: (None, -1) if neither."""
    if e.tail == ["return PLAIN"]:
        return _hook.PLAIN, -1
    returned = [i for i, (_, name) in enumerate(e.outputs.values()) if e.tail == [f"return {name}"]]
    return None, returned[0] if returned else -1


def assemble(e: Emitter, code: CodeType, graph_call: list[str], given: list[str]) -> tuple[FunctionType, str]:
    """Compile the emitted function, and give its source too; its lines are the first line of the user's function."""
    count = argument_count(code) + len(code.co_freevars)
    walk = ["try:", *(f"    {line}" for line in e.walk), "except Exception:", "    return MISS"] if e.walk else []
    parameters = ", ".join([*(f"a{i}" for i in range(count)), *given])
    body = [*walk, *graph_call, *e.tail]
    source = f"def entry({parameters}):\n" + "".join(f"    {line}\n" for line in body)
    return compiled_function(source, "entry", e.names, code), source


def legend(e: Emitter, code: CodeType, source: str, direct: bool) -> Iterator[str]:
    """What the names in the emitted source stand for, as far as it has them."""
    used = set(WORD.findall(source))
    for i, name in enumerate((*code.co_varnames[:argument_count(code)], *code.co_freevars)):
        if f"a{i}" in used:
            yield f"a{i}: {name}" + ", a variable of an outer function" * (name in code.co_freevars)
    yield from (f"{name}: {origin}" for origin, name in e.loaded() if name in used)
    if direct:
        yield "results: those of the graph, which has run"
    yield from (f"{name}: {described(value)}" for name, value in e.names.items()
                if name in used and name not in BUILT_IN)


def described(value: object) -> str:
    """A constant in a few words; nothing of the program's runs for it."""
    if isinstance(value, Plain):
        return f"{described(value.__wrapped__)}, with the hook off"
    if type(value) in NAMED:
        code = getattr(value, "__code__", value)
        where = f", from {code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else ""
        return f"{getattr(value, '__qualname__', None) or getattr(value, 'co_qualname', '')}{where}"
    return repr(value) if type(value) in PRINTED else f"a {type(value).__qualname__}"


def compiled_function(source: str, name: str, names: dict[str, Any], user: CodeType) -> FunctionType:
    try:
        compiled = compile(source, user.co_filename, "exec")
    except (SyntaxError, RecursionError, MemoryError) as error:       # all three say: nested too deeply
        raise Skip(Reason.DEPTH, str(error)) from error
    exec(compiled, names)
    function = names.pop(name)
    function.__code__ = on_one_line(function.__code__, user)
    _hook.skip(function.__code__)
    return function


def on_one_line(emitted: CodeType, user: CodeType) -> CodeType:
    """The emitted code, as if all of it stood on the first line of the user's function."""
    full, rest = divmod(len(emitted.co_code) // 2, 8)
    table = b"\xef\x00" * full + (bytes([0xe8 | (rest - 1), 0]) if rest else b"")     # "no column", line delta 0
    return emitted.replace(co_linetable=table, co_firstlineno=user.co_firstlineno, co_name=user.co_name,
                           co_qualname=user.co_qualname)
