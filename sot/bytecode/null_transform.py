"""Decodes and encodes a function without changing it, to test both steps."""

from __future__ import annotations

import types

from sot.bytecode.decode import decode
from sot.bytecode.encode import encode


def null_transform(fn: types.FunctionType) -> types.FunctionType:
    result = types.FunctionType(
        null_code(fn.__code__), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    result.__kwdefaults__ = fn.__kwdefaults__
    result.__qualname__ = fn.__qualname__
    result.__module__ = fn.__module__
    result.__doc__ = fn.__doc__
    result.__annotations__ = fn.__annotations__
    result.__dict__.update(fn.__dict__)
    return result


def null_code(code: types.CodeType) -> types.CodeType:
    """The code object after decoding and encoding. The code objects in its constants are treated likewise."""
    return _null_code(code, {})


def _null_code(code: types.CodeType, done: dict[int, types.CodeType]) -> types.CodeType:
    if id(code) not in done:
        decoded = decode(code)
        result = encode(decoded.instrs, decoded.handlers, like=code)
        inner = [_null_code(c, done) if isinstance(c, types.CodeType) else c
                 for c in result.co_consts]
        done[id(code)] = result.replace(co_consts=tuple(inner))
    return done[id(code)]
