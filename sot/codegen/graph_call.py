"""The call of a graph in an entry, and what happens to the frame if the graph raises."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any

import torch

from sot import _hook
from sot.backends import BackendError, BackendWarning
from sot.codegen.build_graph import Graph
from sot.codegen.compile_graph import Compiled
from sot.codegen.exit import Exit
from sot.codegen.failed_graphs import leaving, stand_in, take_back_later_draws
from sot.codegen.names import Names
from sot.codegen.released_gradients import unread_gradients
from sot.codegen.source import compiled_function
from sot.guards.draws import AllDrawn, Draws, take_back
from sot.guards.origin import Attr, ById, Origin
from sot.interpreter.torch_ops.hooks.tensor_hooks import remove_places
from sot.interpreter.trace import Trace
from sot.torch_compat.global_state import (
    AUTOCAST_NESTING,
    REGIONS,
    STATE_SETTERS,
    autocast_nesting,
    leave_regions,
    nest_autocast,
    random_state,
    set_random_state,
)
from sot.torch_compat.hooks import count_pushed, is_pushing, is_users_stop, pop_pushed
from sot.torch_compat.tensors import versions

# In the lines that handle an error: raise it again; raise it where the function has been left.
STOP, LEAVE = "<stop>", "<leave>"


@dataclass(frozen=True)
class GraphCall:
    """The call of the graph. If it raises and has changed nothing, Python runs the frame from the start.

    Arguments:
        compiled: the callable. Without a graph there are only the lines ``before``.
        inputs: its arguments.
        results: the names of its results.
        before: the lines before the call.
        failed: the lines that handle ``error``.
        first: the lines before anything has been changed. They may leave the frame to Python.
        released: the gradients that are dropped before it.
        saves_others: whether autograd may save other tensors than in the program, which hooks would show.
    """

    compiled: Callable[..., Any] | None = None
    inputs: tuple[Origin, ...] = ()
    results: tuple[str, ...] = ()
    before: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    released: tuple[Attr, ...] = ()
    saves_others: bool = False

    @property
    def is_only_call(self) -> bool:
        """Whether nothing but the call itself is done before the graph has run."""
        return self.compiled is not None and not self.before and not self.first and not self.released

    @property
    def targets(self) -> str:
        return "".join(name + ", " for name in self.results)

    def release(self, names: Names) -> list[str]:
        """The lines that drop gradients, in variables too, which an entry has for those that it reads."""
        variables = [names.origins[origin] for origin in self.released if origin in names.origins]
        return [f"{place} = None" for place in (*(origin.expr(names) for origin in self.released), *variables)]

    def lines(self, names: Names, code: CodeType) -> list[str]:
        """The call in Python."""
        if self.compiled is None:
            return self.before
        arguments = ", ".join(map(names.ref, self.inputs))
        call = f"{names.const(_hook.plain(self.compiled))}({arguments})"
        line = f"{self.targets}= {call}" if self.results else call
        return [*self.before, "try:", f"    {line}", "except Exception as error:", *self.after(names, code, "raise")]

    def after(self, names: Names, code: CodeType, stop: str) -> list[str]:
        """What is done with an exception of the graph."""
        leave = f"return {names.const(_hook.plain(leaving))}(error, {names.const(stand_in(code))})"
        return [f"    {text.replace(STOP, stop).replace(LEAVE, leave)}" for text in self.failed]

    def recover(self, names: Names, code: CodeType) -> FunctionType:
        """The function that C calls when the graph has raised. It returns the result of the entry, or None to let the
        exception propagate.
        """
        failed = "\n".join(self.after(names, code, "return None"))
        return compiled_function(f"def recover(error):\n{failed}\n", "recover", names.objects, code)


def goes_on(error: Exception) -> bool:
    """Whether the exception must reach the program, instead of making Python run the frame."""
    return isinstance(error, (BackendError, BackendWarning)) or is_users_stop(error)


def call_of(trace: Trace, exit: Exit, graph: Graph | None, compiled: Compiled | None) -> GraphCall:
    """The call of a compiled graph. For a trace without operations it sets torch's states."""
    if graph is not None and compiled is not None:
        call = write_graph_call(
            exit.names, compiled.call, graph, [name for _, name in exit.outputs], trace.draws,
            unread_gradients(trace, graph, exit.names.origins))
        records = graph.turns_grad_on or torch.is_grad_enabled()
        return replace(call, saves_others=records and not compiled.is_unchanged)
    return GraphCall() if exit.is_plain else GraphCall(before=[
        f"{exit.names.const(setter)}(*{exit.names.const(values)})" for setter, values, _ in trace.state_log])


def write_graph_call(names: Names, compiled: Callable[..., Any], graph: Graph, results: Sequence[str],
                     draws: Draws, released: Iterable[Attr]) -> GraphCall:
    """The call of a compiled graph, with these names for its results."""
    changes, before, failed = graph.changes, [], []
    if any(setter in REGIONS for setter, _, _ in graph.states):
        failed.append(f"{names.const(leave_regions)}()")
    if any(setter in AUTOCAST_NESTING for setter, _, _ in graph.states):
        before.append(f"nesting = {names.const(autocast_nesting)}()")
        failed.append(f"{names.const(nest_autocast)}(nesting)")
    if any(is_pushing(setter) for setter, _, _ in graph.states):
        before.append(f"pushed = {names.const(count_pushed)}()")
        failed.append(f"{names.const(pop_pushed)}(pushed)")
    if changes.hooks:
        failed.append(f"{names.const(remove_places)}()")
    failed += [f"{names.const(setter)}(*{names.const(args)})" for _, _, (setter, args) in reversed(graph.states)
               if setter in STATE_SETTERS]
    failed.append(f"if {names.const(goes_on)}(error): {STOP}")
    again, first, undraw, leave = changes.may_run_again, list[str](), list[str](), LEAVE
    if draws.final[1]:
        drawn = names.ref(AllDrawn(ById(draws)))
        undraw = [f"{names.const(take_back)}({drawn})"]
        leave = f"{names.const(take_back_later_draws)}(error, {names.const(draws)}, {drawn}); {LEAVE}"
    if graph.checks is not None:
        first = ["try:", f"    {names.const(_hook.plain(graph.checks))}({', '.join(map(names.ref, graph.inputs))})",
                 "except Exception:", *(f"    {line}" for line in [*undraw, "return PLAIN"])]
    if again and changes.inputs:
        now = f"{names.const(versions)}({', '.join(names.ref(origin) for origin in changes.inputs)})"
        before.append(f"before = {now}")
        failed.append(f"if before != {now}: {leave}")
    if again and changes.keeps_random:
        generators = [*map(names.ref, changes.generators)]
        before.append(f"random = {names.const(random_state)}({', '.join(generators)})")
        failed.append(f"{names.const(set_random_state)}({', '.join(['random', *generators])})")
    if again and changes.flags:
        before.append(f"leaves = {''.join(f'{names.ref(leaf)}, ' for leaf, _ in changes.flags)}")
        failed += (f"leaves[{i}].requires_grad_({flag})" for i, (_, flag) in enumerate(changes.flags))
    failed += [*undraw, "return PLAIN"] if again else [leave]
    return GraphCall(compiled, graph.inputs, (*results,), before, failed, first, (*released,))
