"""From the parts of an emitted function to the entry that the hook asks.

C runs the guard program, loads what it can, and calls the graph if no Python code must come before. The rest stays in
the emitted function. It gets the values that C has loaded as arguments after the frame's own, and the graph's results
last. An entry whose result is a result of the graph needs no function.
"""
from __future__ import annotations

from types import CodeType
from typing import Any

from sot import _hook
from sot.codegen.exit import Exit, plain_exit
from sot.codegen.graph_call import GraphCall
from sot.codegen.names import Walk
from sot.codegen.source import compiled_function, entry_source, legend
from sot.guards.guard_program import GuardProgram
from sot.torch_compat.global_state import NO_MODES, NO_TRACER, GlobalState
from sot.torch_compat.hooks import NO_SAVED_TENSORS_HOOKS


def make_entry(code: CodeType, program: GuardProgram, call: GraphCall, exit: Exit, state: GlobalState,
               callback: Any) -> tuple[_hook.Entry, str]:
    """The entry of a code object, and its source.

    Arguments:
        program: checks the guards, and loads values.
        call: the call of the graph.
        exit: the code after it.
        state: torch's global state that the entry is for.
        callback: the translator's callback, which is called if the entry does not fit.
    """
    names = exit.names
    direct = call.is_only_call and not program.left and all(
        program.has(origin) for origin in (*call.inputs, *names.origins))
    if direct:
        called = [f"{call.targets}= results"] if call.results else []
    else:
        called = call.lines(names, code)
    walk = Walk(names, program)
    walk.write(program.left, program.examples)
    source = entry_source(code, walk.lines, [*call.first, *call.release(names), *called, *exit.lines],
                          [*walk.given, *["results"] * direct])
    text = "".join(f"# {line}\n" for line in legend(names, code, source, direct)) + source
    function = compiled_function(source, "entry", names.objects, code)
    answer, index = shortcut(exit) if not walk.lines else (None, -1)
    if answer is None and index >= 0 and not direct:
        index = -1
    loaded = tuple(program.node(origin) for origin in walk.given.values())
    inputs = tuple(program.node(origin) for origin in call.inputs) if direct else ()
    nodes, pairs, groups = program.finish()
    modes = NO_MODES if call.compiled is None or program.compares_threads else (*NO_MODES, NO_TRACER)
    if call.saves_others:
        modes = *modes, NO_SAVED_TENSORS_HOOKS
    entry = _hook.Entry(
        nodes, pairs, groups, ((state.check, True), *modes), callback,
        function if answer is None and index < 0 else None, tuple(n.index for n in loaded),
        call.compiled if direct else None, tuple(n.index for n in inputs),
        call.recover(names, code) if direct else None, len(call.results), index, answer, code, exit.leaves)
    return entry, text


def make_plain_entry(code: CodeType, program: GuardProgram, state: GlobalState, callback: Any) -> _hook.Entry:
    """An entry that makes Python run the frame while its guards hold."""
    return make_entry(code, program, GraphCall(), plain_exit(), state, callback)[0]


def shortcut(exit: Exit) -> tuple[Any, int]:
    """The constant result of an entry without effects, or the index of the graph's result that it returns; else (None,
    -1).
    """
    if exit.is_plain:
        return _hook.PLAIN, -1
    returned = [i for i, (_, name) in enumerate(exit.outputs) if exit.lines == (f"return {name}",)]
    return None, returned[0] if returned else -1
