"""Branches that ask whether values are finite, such as ``if not torch.isfinite(x).all(): x = clamp(x)``.

Such a branch repairs or skips what has gone wrong, so capture goes the way of finite values, and the graph asserts it.
If the assertion fails, Python runs the frame. If it fails often, it is given up (``failing_guesses.py``), and the
branch is a break. A branch that ends a loop is no such branch.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from sot.graph import NumberRef
from sot.graph.nodes import name_of
from sot.guards.assumptions import Part
from sot.interpreter.torch_ops.data_sizes import graph_numbers, nonempty

if TYPE_CHECKING:
    from sot.graph import TensorRef
    from sot.interpreter.machine import Machine

ASKING = {"isfinite": True, "isnan": False, "isinf": False, "isposinf": False, "isneginf": False}
KEEPING = frozenset(("all", "any", "bool", "reshape", "view", "flatten", "squeeze", "detach", "cpu"))
INVERTING = frozenset(("logical_not", "bitwise_not", "invert", "inv", "__invert__"))
COMBINING = {**dict.fromkeys(("logical_or", "bitwise_or", "or_", "__or__"), any),
             **dict.fromkeys(("logical_and", "bitwise_and", "and_", "__and__"), all)}


def truth_if_finite(m: Machine, number: NumberRef | None, tensor: TensorRef | None) -> bool | None:
    """The truth of a tensor of one element, or of the number read from it, if values are finite, with its assertion;
    None if that does not decide it.
    """
    if number is not None:
        tensor = number.operands[0] if number.function is torch.Tensor.item else None
    point = graph_numbers.here(m)
    if tensor is None or not graph_numbers.may_be(m) or Part.EMPTY in m.assumptions.plain or (
            point in m.assumptions.read_at_once or nonempty.ends_loop(m.frames[-1])):
        return None
    found = of_node(tensor.node)
    if found is None:
        return None
    if number is None:
        number = graph_numbers.read(m, tensor, bool, (), frozenset((point,)))
    file, line, *_ = m.user_position()
    text = f"that values are finite ({file}:{line})"
    graph_numbers.note_guess(m, "a branch", text, m.symbols.data.symbols_of(number.fake))
    graph_numbers.check(m, number, found, text)
    m.refusals.note(m)
    return found


def of_node(node: Any) -> bool | None:
    """The truth of the elements of a result if values are finite."""
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method"):
        return None
    name = name_of(node)
    if name in ASKING:
        return ASKING[name]
    parts = [of_node(arg) for arg in node.args if isinstance(arg, fx.Node)]
    if None in parts or not parts:
        return None
    if name in KEEPING and len(parts) == 1:
        return parts[0]
    if name in INVERTING:
        return not parts[0]
    return COMBINING[name](parts) if name in COMBINING and len(parts) == 2 else None
