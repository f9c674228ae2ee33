"""Make a failing program small: take statements away, put a body in its statement's place, simplify expressions."""
from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator

BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def shrink(source: str, fails: Callable[[str], bool], seconds: float = 60) -> str:
    """The smallest program found in that time that still fails, as source."""
    tree = ast.parse(source)
    progress, end = True, time.monotonic() + seconds
    while progress and time.monotonic() < end:
        progress = False
        for smaller in smaller_trees(tree):
            if time.monotonic() >= end:
                break
            if (text := text_of(smaller)) is not None and fails(text):
                tree, progress = smaller, True
                break
    return ast.unparse(tree)


def text_of(tree: ast.Module) -> str | None:
    """The text of a tree, or None if there is none: some expressions cannot be the format of a field in an f-string."""
    try:
        return ast.unparse(tree)
    except ValueError:
        return None


def smaller_trees(tree: ast.Module) -> Iterator[ast.Module]:
    """Trees with one thing less, those with the most taken away first."""
    for change in sorted(changes(tree), key=lambda c: -c[0]):
        yield change[1]()


def changes(tree: ast.Module) -> Iterator[tuple[int, Callable[[], ast.Module]]]:
    for index, node in enumerate(ast.walk(tree)):
        for field in BODIES:
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                for size in {len(statements), 4, 2, 1} - {0}:
                    if size <= len(statements):
                        places = range(0, len(statements) - size + 1, size)
                        yield from (removal(tree, index, field, at, size) for at in places)
                yield from (hoisting(tree, index, field, at) for at, s in enumerate(statements) if hasattr(s, "body"))
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and not isinstance(value, (ast.Constant, ast.Name)) and isinstance(
                    getattr(value, "ctx", ast.Load()), ast.Load):
                yield from (replacement(tree, index, field, name) for name in ("0", "None", "x", "items"))


def weight(nodes: list) -> int:
    return sum(1 for node in nodes for _ in ast.walk(node))


def editable(tree: ast.Module, index: int) -> tuple[ast.Module, ast.AST]:
    fresh = copy.deepcopy(tree)
    return fresh, [*ast.walk(fresh)][index]


def removal(tree: ast.Module, index: int, field: str, at: int, size: int) -> tuple[int, Callable[[], ast.Module]]:
    def make() -> ast.Module:
        fresh, node = editable(tree, index)
        statements = getattr(node, field)
        del statements[at : at + size]
        if not statements and field == "body":
            statements.append(ast.Pass())
        return fresh
    return weight(getattr([*ast.walk(tree)][index], field)[at : at + size]), make


def hoisting(tree: ast.Module, index: int, field: str, at: int) -> tuple[int, Callable[[], ast.Module]]:
    def make() -> ast.Module:
        fresh, node = editable(tree, index)
        statements = getattr(node, field)
        statements[at : at + 1] = statements[at].body
        return fresh
    return 2, make


def replacement(tree: ast.Module, index: int, field: str, text: str) -> tuple[int, Callable[[], ast.Module]]:
    def make() -> ast.Module:
        fresh, node = editable(tree, index)
        setattr(node, field, ast.parse(text, mode="eval").body)
        return fresh
    return 1, make
