"""From the parts of an emitted function to the entry that the hook asks.

What the guard program can check and load, C does, and calls the graph too if nothing is left to Python before it.
The rest stays in the emitted function, which gets what C has loaded as arguments behind the frame's own, and the
graph's results as the last of them. An entry whose result is one of the graph's has no function at all.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CodeType
from typing import Any

from sot import _hook
from sot.codegen.exit import Exit, plain_exit
from sot.codegen.graph_call import GraphCall
from sot.codegen.names import Walk
from sot.codegen.source import compiled_function, entry_source, legend
from sot.guards.guard_program import GuardProgram
from sot.torch_compat.global_state import NO_MODES, NO_TRACER, GlobalState


def make_entry(code: CodeType, program: GuardProgram, call: GraphCall, exit: Exit, state: GlobalState,
               callback: Any, counters: Iterable[Callable[[], None]] = ()) -> tuple[_hook.Entry, str]:
    """The entry of a code object, and its source.

    Arguments:
        program: checks the guards, and loads what they lead to.
        call: of the graph.
        exit: what is done after it.
        state: torch's global state that the entry is for.
        callback: the translator's, which is asked where the entry does not fit.
        counters: are called whenever the entry runs.
    """
    names = exit.names
    exit = replace(exit, lines=(*(f"{names.const(count)}()" for count in counters), *exit.lines))
    direct = call.is_only_call and not program.left and all(
        program.has(origin) for origin in (*call.inputs, *names.origins))
    if direct:
        called = [f"{call.targets}= results"] if call.results else []
    else:
        called = call.lines(names)
    walk = Walk(names, program)
    walk.write(program.left, program.examples)
    source = entry_source(code, walk.lines, [*called, *exit.lines], [*walk.given, *["results"] * direct])
    text = "".join(f"# {line}\n" for line in legend(names, code, source, direct)) + source
    function = compiled_function(source, "entry", names.objects, code)
    answer, index = shortcut(exit) if not walk.lines else (None, -1)
    if answer is None and index >= 0 and not direct:
        index = -1
    loaded = tuple(program.node(origin) for origin in walk.given.values())
    inputs = tuple(program.node(origin) for origin in call.inputs) if direct else ()
    nodes, pairs, groups = program.finish()
    modes = NO_MODES if call.compiled is None or program.compares_threads else (*NO_MODES, NO_TRACER)
    entry = _hook.Entry(
        nodes, pairs, groups, ((state.check, True), *modes), callback,
        function if answer is None and index < 0 else None, tuple(n.index for n in loaded),
        call.compiled if direct else None, tuple(n.index for n in inputs),
        call.recover(names, code) if direct else None, len(call.results), index, answer, code, exit.leaves)
    return entry, text


def make_plain_entry(code: CodeType, program: GuardProgram, state: GlobalState, callback: Any) -> _hook.Entry:
    """An entry that has Python run the frame while its guards hold."""
    return make_entry(code, program, GraphCall(), plain_exit(), state, callback)[0]


def shortcut(exit: Exit) -> tuple[Any, int]:
    """The answer of an entry that does nothing, or which result of the graph it returns: (None, -1) if neither."""
    if exit.is_plain:
        return _hook.PLAIN, -1
    returned = [i for i, (_, name) in enumerate(exit.outputs) if exit.lines == (f"return {name}",)]
    return None, returned[0] if returned else -1
