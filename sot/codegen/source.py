"""Emitted source: how it becomes a function, and what its names stand for."""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType
from typing import Any

from sot import _hook
from sot.bytecode.resume_origin import argument_count
from sot.codegen.names import BUILT_IN, Names
from sot.support.errors import Reason, Skip
from sot.support.own_code import BUILTINS

Plain = type(_hook.plain(len))
WORD = re.compile(r"\w+")
NAMED = (FunctionType, BuiltinFunctionType, MethodDescriptorType, CodeType, type)
PRINTED = (int, float, str, bytes, bool, complex)


def entry_source(code: CodeType, walk: Sequence[str], body: Sequence[str], given: Sequence[str]) -> str:
    """The function that takes the inputs of the frame and the values that the guard program has ``given``. It walks
    the origins under their guards, and then runs its body.
    """
    parameters = ", ".join([*(f"a{i}" for i in range(argument_count(code) + len(code.co_freevars))), *given])
    guarded = ["try:", *(f"    {line}" for line in walk), "except Exception:", "    return MISS"] if walk else []
    return f"def entry({parameters}):\n" + "".join(f"    {line}\n" for line in (*guarded, *body))


def compiled_function(source: str, name: str, objects: dict[str, Any], user: CodeType) -> FunctionType:
    """Compile the source, and return its function of that name. All its instructions have the first line of ``user``.

    Raises Skip if it is nested too deeply for Python's compiler.
    """
    try:
        compiled = compile(source, user.co_filename, "exec")
    except (SyntaxError, RecursionError, MemoryError) as error:       # each of these means that it is nested too deeply
        raise Skip(Reason.DEPTH, str(error)) from error
    objects["__builtins__"] = BUILTINS
    exec(compiled, objects)
    function = objects.pop(name)
    function.__code__ = on_one_line(function.__code__, user)
    _hook.skip(function.__code__)
    return function


def on_one_line(emitted: CodeType, user: CodeType) -> CodeType:
    """The emitted code with the line table of one line: the first line of ``user``."""
    full, rest = divmod(len(emitted.co_code) // 2, 8)
    table = b"\xef\x00" * full + (bytes([0xe8 | (rest - 1), 0]) if rest else b"")     # "no column", line delta 0
    return emitted.replace(co_linetable=table, co_firstlineno=user.co_firstlineno, co_name=user.co_name,
                           co_qualname=user.co_qualname)


# ---- what the names stand for -----------------------------------------------------------------------------
def legend(names: Names, code: CodeType, source: str, direct: bool) -> Iterator[str]:
    """What the names in the emitted source stand for. ``direct``: C calls the graph."""
    used = set(WORD.findall(source))
    for i, name in enumerate((*code.co_varnames[:argument_count(code)], *code.co_freevars)):
        if f"a{i}" in used:
            yield f"a{i}: {name}" + ", a variable of an outer function" * (name in code.co_freevars)
    yield from (f"{name}: {origin}" for origin, name in names.origins.items() if name in used)
    if direct:
        yield "results: those of the graph, which has run"
    yield from (f"{name}: {described(value)}" for name, value in names.objects.items()
                if name in used and name not in BUILT_IN)


def described(value: object) -> str:
    """A short description of a constant, which runs no code of the program."""
    if isinstance(value, Plain):
        return f"{described(value.__wrapped__)}, with the hook off"
    if type(value) in NAMED:
        code = getattr(value, "__code__", value)
        where = f", from {code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else ""
        return f"{getattr(value, '__qualname__', None) or getattr(value, 'co_qualname', '')}{where}"
    return repr(value) if type(value) in PRINTED else f"a {type(value).__qualname__}"
