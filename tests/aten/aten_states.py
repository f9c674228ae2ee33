"""Lines of random programs about state: running statistics, results in memory that is given (``out``), draws into
views, and parts of memory that are assigned.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from aten_maker import NAMES, Maker, kind
from aten_programs import positions, spread
from torch import fx


def row_of(m: Maker, size: int, test: Callable[[torch.Tensor], bool]) -> str:
    """So many elements of a value."""
    name = m.any(lambda v: v.numel() >= size and test(v))
    return name if m.of(name).shape == (size,) else f"{name}.flatten()[:{size}]"


def memory(m: Maker) -> str:
    """A value that may be changed without a gradient."""
    return m.any(lambda v: v.is_floating_point() and not v.requires_grad and v.dim() > 0)


def _into(function: Callable[..., Any], out: Any, *args: Any) -> Any:
    """The result of a function in memory that is given. It is not resized, which would be deprecated."""
    if isinstance(out, fx.Proxy):
        return out.tracer.create_proxy("call_function", function, args, {"out": out})
    if function(*args).shape != out.shape:
        raise ValueError("another size")
    return function(*args, out=out)


NAMES["into"] = _into


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@kind(2)
def normalised_with_state(m: Maker) -> str:
    x = m.any(lambda v: v.is_floating_point() and v.dim() in (2, 3, 4))
    c = m.of(x).shape[1]
    mean = row_of(m, c, lambda v: v.dtype == m.of(x).dtype and not v.requires_grad and not shares(v, m.of(x)))
    return m.one(f"F.batch_norm({x}, {mean}, {mean}.abs() + 1, training=True)",
                 f"F.batch_norm({x}, {mean}, {mean}.clone().abs_(), {mean} * 2, {mean} - 1, True, 0.3)",
                 f"F.batch_norm({x}, {mean}, {mean}.square(), training=False)",
                 f"F.instance_norm({x}, {mean}, {mean}.abs() + 1)",
                 f"F.instance_norm({x}, {mean}, {mean}.abs() + 1, use_input_stats=False)")


@kind(2)
def with_weights(m: Maker) -> str:
    """Norms with weights whose gradients are sums over the other axes."""
    x = m.any(lambda v: v.is_floating_point() and v.dim() in (2, 3, 4))
    last, c = m.of(x).shape[-1], m.of(x).shape[1]
    row = row_of(m, m.one(last, c), lambda v: v.dtype == m.of(x).dtype)
    return m.one(f"F.layer_norm({x}, ({last},), {row}, {row} * 0.5)", f"F.rms_norm({x}, ({last},), {row})",
                 f"F.group_norm({x}, 1, {row}, {row})", f"F.group_norm({x}, {c}, {row})",
                 f"F.batch_norm({x}, None, None, {row}, {row}, training=True)", f"F.prelu({x}, {row})",
                 f"F.layer_norm({x}, {x}.shape[1:], {x}[0].detach())", f"F.bilinear({row}, {row}, {x}[None, :1])")


@kind(2)
def into_memory(m: Maker) -> str:
    out, a, b = memory(m), m.float(), m.float()
    d = m.one(0, -1)
    return m.one(f"into(torch.add, {out}, {a}.detach(), {b}.detach())", f"into(torch.sin, {out}, {a}.detach())",
                 f"into(torch.mul, {out}[{m.part(out)}], {a}.detach(), 2)",
                 f"into(torch.mul, {out}, {out}, {b}.detach())", f"into(torch.exp, {out}.T, {out}.T)",
                 f"into(torch.cumsum, {out}, {a}.detach(), {d})", f"into(torch.sum, {out}, {a}.detach(), {d})",
                 f"into(torch.matmul, {out}, {a}.detach(), {b}.detach())",
                 f"into(torch.softmax, {out}, {a}.detach(), {d})")


@kind(2)
def drawn_into_parts(m: Maker) -> str:
    """Draws that follow each other, into views."""
    x = memory(m)
    where = m.one(x, f"{x}[{m.part(x)}]", f"{x}.transpose(0, -1)", f"{x}[::2]")
    return m.one(f"{where}.normal_()", f"{where}.uniform_(0, 2)", f"{where}.bernoulli_(0.3)", f"{where}.random_(5)",
                 f"{where}.exponential_(2.0)", f"{where}.cauchy_()", f"{where}.log_normal_()",
                 f"{where}.geometric_(0.4)", f"F.dropout({where}, 0.5, True, True)",
                 f"{where}.normal_() + torch.rand({m.of(x).shape[0]}, 1)", f"torch.randint(0, 7, {where}.shape)",
                 f"{where}.bernoulli_({x}[0].abs().clamp(0, 1))", f"F.dropout1d({x}, 0.4)", f"F.dropout2d({x}, 0.4)")


@kind(3)
def assigned(m: Maker) -> str:
    """Parts that are assigned, as ``x[...] = y`` does, also to what needs a gradient."""
    name, value = m.ranked(), m.any()
    part = m.part(name)
    new = m.one(f"{name}.clone()", f"torch.zeros_like({name})", f"({name} * 2)", f"{name}.new_empty({name}.shape)"
                ".fill_(1)", f"torch.cat([{name}, {name}])")
    d = m.dim(name)
    return m.one(f"assigned({new}, {value}, ({slices(part)}))", f"assigned({new}, {value}, {value} > 0)",
                 f"assigned({new}, {name}.sum(), {spread(m, name, 0)}.flatten())",
                 f"assigned({new}, {value}, (Ellipsis, {positions(m)}))",
                 f"assigned({new}, {name}.flip({d}) if {name}.dtype == {value}.dtype else {value}, ...)",
                 f"assigned({new}, 3, ({slices(part)}))", f"assigned({new}, {name}.amax(), {name} > 0)",
                 f"assigned({new}, {name}[:1], slice(0, 2)) + {name}[0]")


def slices(part: str) -> str:
    """The text of a subscript as the text of the items of a tuple."""
    def one(text: str) -> str:
        if ":" not in text:
            return {"...": "Ellipsis"}.get(text, text)
        return f"slice({', '.join(number or 'None' for number in text.split(':'))})"
    return "".join(f"{one(text)}, " for text in part.split(", "))


def _assigned(target: Any, value: Any, where: Any) -> Any:
    """``target``, after ``target[where] = value``."""
    if isinstance(target, fx.Proxy):
        target.tracer.create_proxy("call_function", operator.setitem, (target, where, value), {})
    else:
        target[where] = value
    return target


NAMES["assigned"] = _assigned
