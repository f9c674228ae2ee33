"""The only module that uses torch's symbolic shapes, which are private. Its import takes about a second.

A symbol stands for an integer that differs from call to call: the size of a dimension, a stride, a Python number.
Operations on fake tensors with symbolic sizes compute how the sizes of results follow from the sizes of inputs. torch
records what it assumed about the symbols.
"""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import sympy
import torch
from torch._guards import Source
from torch._logging import trace_structured
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StrictMinMaxConstraint
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from sot.torch_compat.subclasses.wrappers import is_ragged
from sot.torch_compat.tensors import set_versions

SymInt = torch.SymInt
# torch's structured log removes its handler at the first record if nothing is logged. The record of the first symbol
# would import the whole compiler for that, to tell its frames from those of the program.
trace_structured("artifact", lambda: {"name": "sot", "encoding": "string"}, payload_fn=str, expect_trace_id=False)
Term = Any      # as sot.guards.terms has them: what stands for a symbol, a constant, or (symbol, operand, ...)


class Untranslatable(Exception):
    """An expression for which there is no term."""


class Named(Source):
    """The source of a symbol, for torch, which needs only a name."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def _name_template(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.text == other.text


class Shapes(ShapeEnv):
    """An environment that does not look for the program's line at each symbol and assumption. Capture knows the line.
    torch imports its compilers in order to tell its own frames from the program's, which takes longer than a capture.
    """

    def _get_user_frame(self) -> FrameType | None:
        return inspect.currentframe()


def shape_env_of(mode: FakeTensorMode) -> ShapeEnv:
    """The environment of a mode's symbols, made if it has none. Equal sizes are equal only if the program needs it."""
    if mode.shape_env is None:
        mode.shape_env = Shapes(duck_shape=False, specialize_zero_one=True, allow_scalar_outputs=False,
                                allow_dynamic_output_shape_ops=False)
        mode.static_shapes = False
        mode.cache_enabled = False      # it is slow with symbols: see operators/remembered.py
    return mode.shape_env


def new_symbol(env: ShapeEnv, name: str, example: int, is_size: bool, limits: tuple[int, int | None] | None
               ) -> tuple[Any, Any]:
    """A symbol and its SymInt. A size is within the limits and at least 2, as 0 and 1 are never symbols. A number may
    be any.
    """
    make = env.create_symbol if is_size else env.create_unspecified_symbol
    within: dict[str, Any] = {}
    if limits is not None:
        least, most = limits
        within["constraint_dim"] = StrictMinMaxConstraint(False, ValueRanges(least, int_oo if most is None else most))
    symbol = make(example, Named(name), dynamic_dim=DimDynamic.DYNAMIC, **within)
    return symbol, env.create_symintnode(symbol, hint=example, source=Named(name))


def fake_of(mode: FakeTensorMode, real: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]) -> FakeTensor:
    """A fake tensor like a real one, but of these sizes and strides.

    A fake of a view is a view: autograd refuses to change some views in place, and the fake has to raise as well.
    """
    base = real._base if real._is_view() and real._base is not None else real
    with mode, torch.inference_mode(real.is_inference()), torch.enable_grad():
        fake: Any = torch.empty_strided(sizes, strides, dtype=real.dtype, device=real.device)
        if real.storage_offset():
            fake = moved(fake, real.storage_offset())
        if base.requires_grad and not base.is_leaf:
            fake.add_(torch.ones((), dtype=real.dtype, device=real.device, requires_grad=True))
            set_versions([fake], [0])       # a version tells a change by the program
        else:
            fake.requires_grad_(base.requires_grad)
        if base is not real:
            fake = view_like(fake, real)
    return fake


def moved(fake: Any, offset: Any) -> Any:
    """A fake tensor with the layout of another one, whose first element is the one at ``offset`` of its storage. It is
    no view.
    """
    size = fake.untyped_storage().nbytes() // fake.itemsize + offset
    memory = torch.empty((size,), dtype=fake.dtype, device=fake.device).untyped_storage()
    return fake.new_empty(0).set_(memory, offset, fake.shape, fake.stride())


def view_like(fake: Any, real: torch.Tensor) -> Any:
    """A view of a whole fake tensor, made as the real view was: with or without a gradient, one of several or not."""
    with torch.set_grad_enabled(real.requires_grad):
        view = torch.ops.aten.alias.default(fake)
    if real.requires_grad and not view.requires_grad:   # its base needs no gradient
        view.requires_grad_()
    torch._C._autograd._set_creation_meta(view, torch._C._autograd._get_creation_meta(real))
    return view


def layout_of(tensor: torch.Tensor) -> list[Any]:
    """Sizes and strides, which may be symbolic."""
    return [*tensor.shape, *tensor.stride()]


def is_same(a: list[Any], b: list[Any]) -> bool:
    """Whether two layouts are known to be equal. This makes no assumption."""
    left, right = ([expression(n) if isinstance(n, SymInt) else int(n) for n in layout] for layout in (a, b))
    return left == right


def expression(number: Any) -> Any:
    """The sympy expression of a symbolic number, as far as torch knows it by now. The size of a ragged dimension is the
    same constant wherever it is.
    """
    return sympy.Integer(number.node.nested_int()) if is_ragged(number) else number.node.expr


def example_of(number: Any) -> Any:
    """The value that a symbolic number has in the call that is captured."""
    return number.node.hint


def with_examples(text: str, env: ShapeEnv) -> str:
    """A message of torch with the sizes of the captured call in place of their symbols."""
    sizes = {str(symbol): str(value) for symbol, value in env.backed_var_to_val.items()}
    return re.sub(r"\b[a-z]+\d+\b", lambda found: sizes.get(found[0], found[0]), text)


def is_known(number: Any) -> bool:
    """Whether it has turned out to be a constant."""
    return not expression(number).free_symbols


def assumptions(env: ShapeEnv, start: int) -> list[Any]:
    """The assumptions about symbols, from the ``start``-th one."""
    return [guard.expr for guard in env.guards[start:]]


# ---- sympy expressions -> terms -----------------------------------------------------------------------------
BINARY = {"FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%", "PowByNatural": "**", "IntTrueDiv": "/",
          "FloatTrueDiv": "/", "Max": "max", "Min": "min", "StrictLessThan": "<", "LessThan": "<=",
          "StrictGreaterThan": ">", "GreaterThan": ">=", "Equality": "==", "Unequality": "!=", "And": "and", "Or": "or"}
UNARY = {"Not": "not", "Abs": "abs", "ToFloat": "float", "FloorToInt": "math.floor", "CeilToInt": "math.ceil",
         "TruncToInt": "math.trunc", "RoundToInt": "round"}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def term_of(expr: Any, origin_of: Callable[[Any], Term]) -> Term:
    """The term of a sympy expression over symbols. Raises Untranslatable."""
    if expr.is_Symbol:
        return origin_of(expr)
    if expr.is_Integer:
        return int(expr)
    if expr.is_Float:
        return float(expr)
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if isinstance(expr, sympy.Add):
        return _sum(expr.args, origin_of)
    if isinstance(expr, sympy.Mul):
        return _product(expr, origin_of)
    name = type(expr).__name__
    if name in MIRRORED_CLASSES:
        return _relation(BINARY[name], expr, origin_of)
    parts = [term_of(a, origin_of) for a in expr.args]
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return ("**", *parts)
    if name in UNARY and len(parts) == 1:
        return (UNARY[name], *parts)
    if name in BINARY and len(parts) >= 2:
        return _folded(BINARY[name], parts)
    if name == "CeilDiv":
        return ("neg", ("//", ("neg", parts[0]), parts[1]))
    if name == "ModularIndexing":
        return ("%", ("//", parts[0], parts[1]), parts[2])
    raise Untranslatable(f"{name} in {expr}")


MIRRORED_CLASSES = frozenset(name for name, symbol in BINARY.items() if symbol in MIRRORED)


def _folded(symbol: str, parts: list[Term]) -> Term:
    term = parts[0]
    for part in parts[1:]:
        term = (symbol, term, part)
    return term


def _sum(terms: Sequence[Any], origin_of: Callable) -> Term:
    """``a + b - c``: what has a minus sign comes last, and a constant at the very end."""
    ordered = sorted(terms, key=lambda t: (t.is_number, t.could_extract_minus_sign()))
    result = term_of(ordered[0], origin_of)
    for t in ordered[1:]:
        minus = t.could_extract_minus_sign()
        result = ("-" if minus else "+", result, term_of(-t if minus else t, origin_of))
    return result


def _product(expr: Any, origin_of: Callable) -> Term:
    if expr.could_extract_minus_sign():
        return ("neg", term_of(-expr, origin_of))
    factors = sorted(expr.args, key=lambda t: not t.is_number)
    if any(f.is_number and not f.is_Integer for f in factors):
        raise Untranslatable(str(expr))
    return _folded("*", [term_of(f, origin_of) for f in factors])


def _relation(symbol: str, expr: Any, origin_of: Callable) -> Term:
    """Both sides without minus signs, and a constant on the right. Sums of floats would be rounded otherwise."""
    if any(side.has(sympy.Float) and not side.is_Float for side in (expr.lhs, expr.rhs)):
        raise Untranslatable(str(expr))
    if expr.rhs.is_Float and not expr.lhs.is_number:
        return symbol, term_of(expr.lhs, origin_of), float(expr.rhs)
    if expr.lhs.is_Float and not expr.rhs.is_number:
        return MIRRORED[symbol], term_of(expr.rhs, origin_of), float(expr.lhs)
    left: list[Any] = []
    right: list[Any] = []
    constant = sympy.Integer(0)     # of the right side
    for here, there, side, sign in ((left, right, expr.lhs, -1), (right, left, expr.rhs, 1)):
        for t in sympy.Add.make_args(side):
            if t.is_number:
                constant += sign * t
            elif t.could_extract_minus_sign():
                there.append(-t)
            else:
                here.append(t)
    if not left:
        left, right, symbol, constant = right, left, MIRRORED[symbol], -constant
    if constant < 0 and right:
        left, constant = [*left, -constant], sympy.Integer(0)
    if constant != 0 or not right:
        right = [*right, constant]
    return symbol, _sum(left, origin_of), _sum(right, origin_of)
