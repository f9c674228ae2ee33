"""What Inductor and AOTAutograd did with a graph: noted while they compile it, so that it can be done again.

Only the simplest form is kept: one module for the CPU that computes the results from the inputs, and changes inputs
within the module. AOTAutograd's own work at run time is then to run it without gradients and to count the changes.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from sot.torch_compat.compilers import imported
from sot.torch_compat.inductor.module_text import CALL, Needs, Refused, call_of, short_form


@dataclass
class Kept:
    """A compiled graph: a short module, what it needs, and what AOTAutograd does around it.

    Arguments:
        changed: the indices of the inputs that the module changes, as autograd is to see it.
        leaves_autocast: whether it was compiled within autocast, so that it has to run outside of it.
    """

    source: str
    needs: Needs
    changed: list[int]
    leaves_autocast: bool

    def compiled(self, file: str) -> Callable[..., Any] | None:
        call = call_of(self.source, self.needs, file)
        return None if call is None else around(call, self.changed, self.leaves_autocast)


@dataclass
class Notes:
    """The graphs that Inductor has compiled within one compilation, with the number of their inputs, and what
    AOTAutograd knows of the graph.
    """

    graphs: list[tuple[Any, int]] = field(default_factory=list)
    metadata: Any = None

    def compile_inner(self, gm: Any, inputs: Sequence[Any], **arguments: Any) -> Any:
        """Inductor's part of the compilation, noted."""
        compiled = imported("torch._inductor.compile_fx").compile_fx_inner(gm, inputs, **arguments)
        self.graphs.append((compiled, sum(isinstance(value, FakeTensor) for value in inputs)))
        return compiled

    def kept(self, inputs: int) -> Kept:
        """The compilation of a graph with so many inputs. Raises Refused if it has not the simplest form."""
        if len(self.graphs) != 1:
            raise Refused(f"{len(self.graphs)} graphs")
        (graph, count), = self.graphs
        if count != inputs or not is_simple(self.metadata):
            raise Refused("AOTAutograd changes inputs or results at run time")
        source, needs = short_form(graph.source_code, names_of(graph))
        return Kept(source, needs, [*self.metadata.mutated_graph_handled_indices_seen_by_autograd],
                    torch._C._is_any_autocast_enabled())


def is_simple(metadata: Any) -> bool:
    """Whether AOTAutograd leaves nothing to do after the module: no result is a view of an input or of another result,
    and no input is changed outside of the module.
    """
    if metadata is None:
        return False
    plain = [*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta]
    return not (metadata.num_outputs_aliased or metadata.num_intermediate_bases or metadata.tokens
                or metadata.num_mutated_inp_runtime_indices or metadata.num_graphsafe_rng_states
                or metadata.grad_enabled_mutation is not None or metadata.dynamic_outputs
                or getattr(metadata, "act_input_indices", None) or metadata.is_rng_op_functionalized
                or any(type(part).__name__ != "PlainTensorMeta" and type(part) is not int for part in plain))


def names_of(graph: Any) -> dict[str, Any]:
    """The names in the module of a graph. Raises Refused if a call of the graph is more than that of ``call``."""
    if type(graph).__name__ != "CompiledFxGraph" or not graph.fx_kwargs["is_inference"]:
        raise Refused("it has a backward graph")
    if not {*graph.device_types} <= {"cpu"} or graph.inputs_to_check:
        raise Refused(f"it is for {', '.join(graph.device_types)}")
    if graph.constants or graph.torchbind_constants or graph.frozen_param_names:
        raise Refused("it has constants")
    call = graph.current_callable
    names = getattr(call, "__globals__", {})
    if names.get(CALL) != call or not Path(names.get("__file__", "")).exists():
        raise Refused("Inductor has wrapped the module")
    return names


def around(call: Callable[[list[Any]], Any], changed: Sequence[int], leaves_autocast: bool) -> Callable[..., Any]:
    """What AOTAutograd does around a module of the simplest form."""
    def run(*inputs: Any) -> Any:
        if changed:
            torch.autograd.graph.increment_version([inputs[i] for i in changed])
        grad = torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(False)
            if leaves_autocast:
                with torch._C._DisableAutocast():
                    return [*call([*inputs])]
            return [*call([*inputs])]
        finally:
            torch._C._set_grad_enabled(grad)
    return run
