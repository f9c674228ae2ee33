"""Patterns of graphs: the left-hand sides of rules in ``graph/rewrite/rewrites.py``, as expressions over holes.

    q, k, v, scale = holes("q k v scale") attention = op("matmul", op("softmax", op("mul", op("matmul", q,
    op("transpose", k, -2, -1)), scale), -1), v)

An operation has one name, however the program spells it: ``a @ b``, ``torch.matmul(a, b)``, ``a.matmul(b)`` and ATen's
``aten.matmul.default`` are ``matmul``. A hole stands for any value; the same hole twice stands for the same value.
Arguments of a node that the pattern does not name must have their defaults. ``matches`` finds the ways in which a node
fits a pattern. Intermediate values must have no other users, so that they can be removed.
"""
from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from sot.torch_compat.functions import nn_functions


# ---- expressions ----------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Hole:
    """Any value, by this name."""

    name: str


@dataclasses.dataclass(frozen=True)
class Operation:
    name: str
    operands: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Either:
    """The first alternative that fits. Holes that only some alternatives have stay unbound otherwise."""

    ways: tuple[Any, ...]


def holes(names: str) -> list[Hole]:
    return [Hole(name) for name in names.split()]


def op(name: str, *operands: Any, **named: Any) -> Operation:
    """An operation on these operands, in the order of ``PARAMETERS``. Numbers stand for themselves."""
    return Operation(name, operands, tuple(named.items()))


def either(*ways: Any) -> Either:
    return Either(ways)


# ---- nodes in all spellings ----------------------------------------------------------------------
# Parameters of functions without a signature. `self` is `input` everywhere.
PARAMETERS: Mapping[str, tuple[str, ...]] = {name: tuple(parameters.split()) for name, parameters in {
    "add": "input other", "sub": "input other", "mul": "input other", "div": "input other",
    "matmul": "input other", "bmm": "input other", "softmax": "input dim dtype", "transpose": "input dim0 dim1",
    "masked_fill": "input mask value", "where": "condition input other", "mean": "input dim keepdim dtype",
    "pow": "input exponent", "square": "input", "sqrt": "input", "rsqrt": "input", "to": "input dtype",
    "float": "input", "type_as": "input other", "relu": "input", "dropout": "input p training inplace",
    "var": "input dim unbiased keepdim correction", "conv1d": "input weight bias stride padding dilation groups",
    "conv2d": "input weight bias stride padding dilation groups",
    "conv3d": "input weight bias stride padding dilation groups",
    "mm": "input mat2", "addmm": "input mat1 mat2 beta alpha", "view": "input size", "permute": "input dims",
    "linear": "input weight bias", "erf": "input", "tanh": "input", "expand": "input size", "reshape": "input shape",
    "getitem": "input index", "index_put": "input indices values accumulate",
    "unsqueeze": "input dim", "repeat_interleave": "input repeats dim output_size",
    "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal scale enable_gqa",
    "batch_norm": "input running_mean running_var weight bias training momentum eps",
}.items()}
SYNONYMS = {"truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub",
            "swapaxes": "transpose", "_softmax": "softmax", "_to_copy": "to", "_unsafe_index_put": "index_put"}
VARIADIC = frozenset(("expand", "reshape", "view"))     # these methods also take sizes as separate arguments
COMMUTATIVE = frozenset(("add", "mul"))
IGNORED = frozenset(("_stacklevel", "inplace"))      # these change no value, if it has no other user
DIMENSIONS = frozenset(("dim", "dim0", "dim1"))
DEFAULTS: Mapping[str, Any] = {"keepdim": False, "unbiased": None, "correction": None, "alpha": 1, "beta": 1,
                               "dropout_p": 0.0, "is_causal": False, "enable_gqa": False}


def spelled(node: fx.Node) -> tuple[str, dict[str, Any]] | None:
    """The operation's canonical name, and its arguments by parameter name; None for operations that patterns do not
    support.
    """
    name = name_of(node)
    if name not in PARAMETERS:
        return None
    order = parameters_of(node.target) if node.op == "call_function" else PARAMETERS[name]
    order = order or PARAMETERS[name]
    args = node.args
    if name in VARIADIC and node.op == "call_method" and len(args) > 1 and not isinstance(args[1], tuple | list):
        args = (args[0], args[1:])
    if len(args) > len(order):
        return None
    given = dict(zip(order, args, strict=False)) | {rename(k): v for k, v in node.kwargs.items()}
    return name, {k: _from_the_end(k, v, node, name) for k, v in given.items() if k not in IGNORED}


def name_of(node: fx.Node) -> str:
    if node.op == "call_method":
        name = str(node.target)
    elif isinstance(node.target, torch._ops.OpOverload):
        name = node.target._schema.name.partition("::")[2]
    else:
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return SYNONYMS.get(name, name)


@functools.cache
def parameters_of(target: Any) -> tuple[str, ...]:
    """The names of a function's parameters, in order; empty if Python does not know them."""
    if isinstance(target, torch._ops.OpOverload):
        return tuple(rename(a.name) for a in target._schema.arguments)
    return tuple(map(rename, inspect.signature(target).parameters)) if inspect.isfunction(target) else ()


def rename(parameter: str) -> str:
    return {"self": "input", "axis": "dim"}.get(parameter, parameter)


def _from_the_end(parameter: str, value: Any, node: fx.Node, name: str) -> Any:
    """Axes counted from the end, as patterns have them; one axis in a list is that axis."""
    if parameter not in DIMENSIONS or not node.all_input_nodes:
        return value
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    rank = getattr(fake_of(node.all_input_nodes[0]), "ndim", 0) + (name == "unsqueeze")
    return value - rank if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else value


def fake_of(node: Any) -> Any:
    """The fake value of a node, of a captured or of an ATen graph; a number is itself."""
    return node.meta.get("example_value", node.meta.get("val")) if isinstance(node, fx.Node) else node


# ---- matching ---------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Match:
    """The values of the holes, and the matched nodes, the last node first."""

    bound: Mapping[str, Any]
    nodes: tuple[fx.Node, ...]

    @property
    def last(self) -> fx.Node:
        return self.nodes[0]

    def fake(self, hole: str) -> Any:
        return fake_of(self.bound[hole])

    def is_private(self) -> bool:
        """Whether only the last node has users outside the match. Unused nodes do not count."""
        inside = set(self.nodes)
        return all(user in inside or is_unused(user) for node in inside - {self.last} for user in node.users)


def matches(pattern: Any, node: fx.Node) -> Iterator[Match]:
    """Each way in which the node is what the pattern describes, and what is between is used by nothing else."""
    for found in _matched(pattern, node, Match({}, ())):
        if found.is_private():
            yield found


def _matched(pattern: Any, value: Any, so_far: Match) -> Iterator[Match]:
    match pattern:
        case Hole(name):
            if name not in so_far.bound:
                yield dataclasses.replace(so_far, bound={**so_far.bound, name: value})
            elif so_far.bound[name] is value or (not isinstance(value, fx.Node) and so_far.bound[name] == value):
                yield so_far
        case Either(ways):
            for way in ways:
                yield from _matched(way, value, so_far)
        case Operation():
            if isinstance(value, fx.Node):
                yield from _operation(pattern, value, so_far)
        case _:
            if not isinstance(value, fx.Node) and type(value) in (type(pattern), int, float) and value == pattern:
                yield so_far


def _operation(pattern: Operation, node: fx.Node, so_far: Match) -> Iterator[Match]:
    found = spelled(node)
    if found is None or found[0] != pattern.name:
        return
    name, given = found
    wanted = dict(zip(PARAMETERS[name], pattern.operands, strict=False)) | dict(pattern.named)
    if any(value != DEFAULTS.get(k) for k, value in given.items() if k not in wanted):
        return
    pairs = [(part, given.get(k, DEFAULTS.get(k))) for k, part in wanted.items()]
    here = dataclasses.replace(so_far, nodes=so_far.nodes if node in so_far.nodes else (*so_far.nodes, node))
    yield from _all(pairs, here)
    if name in COMMUTATIVE and len(pairs) == 2:
        yield from _all([(pairs[0][0], pairs[1][1]), (pairs[1][0], pairs[0][1])], here)


def _all(pairs: list[tuple[Any, Any]], so_far: Match) -> Iterator[Match]:
    if not pairs:
        yield so_far
        return
    (part, value), *rest = pairs
    for found in _matched(part, value, so_far):
        yield from _all(rest, found)


# ---- what stands between ------------------------------------------------------------------------------------
HOMES = ("_operator", "math", "torch.functional", "torch.nn.functional")
CHANGING = frozenset(("setitem", "batch_norm", "instance_norm"))
IN_PLACE = frozenset(f for name, f in vars(operator).items() if name[:1] == "i" and hasattr(operator, name[1:]))


def is_unused(node: fx.Node) -> bool:
    return not node.users and node.op != "output" and not may_change(node)


def may_change(node: fx.Node) -> bool:
    """Whether the node may change a tensor, or torch's state. Unknown functions may."""
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable or node.target.namespace not in ("aten", "prims")
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    if node.op == "call_function" and not (is_torchs(node.target) and node.target not in IN_PLACE):
        return True
    given = dict(zip(parameters_of(node.target), node.args, strict=False)) | node.kwargs
    if given.get("inplace") or given.get("out") is not None:
        return True
    return name in CHANGING or name.startswith(("set_", "_set", "__i")) or name[-1:] == "_" != name[-2:-1]


def is_torchs(function: Any) -> bool:
    """Python's operators, and torch's own functions."""
    if function is getattr:
        return True
    places = (torch, nn_functions, torch.nn.functional)
    return getattr(function, "__module__", "") in HOMES or any(
        getattr(place, getattr(function, "__name__", ""), None) is function for place in places)
