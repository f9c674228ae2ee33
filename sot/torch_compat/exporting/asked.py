"""What torch.export asked of sizes while it made a program. Its own modules check that only if the program has example
inputs, which a file would have to unpickle.
"""
from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

NAMES: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.USub: "neg",
    ast.Not: "not", ast.And: "and", ast.Or: "or", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">="}
CALLS = {"torch.sym_float": "float", "float": "float", "int": "int", "abs": "abs", "min": "min", "max": "max",
         "torch.sym_min": "min", "torch.sym_max": "max",      # from torch 2.15 on
         "math.trunc": "math.trunc", "math.floor": "math.floor", "math.ceil": "math.ceil", "math.log2": "math.log2"}
Term = Any
Size = Callable[[str, int], Term]       # of the argument that is ``L['x'][0]`` for torch, and a dimension


def asked_of(program: Any, size: Size) -> Iterator[tuple[str, Term | None]]:
    """Each condition, as text and as a term over sizes; None for a term that has other parts."""
    for text in program._guards_code:
        try:
            yield text, term_of(ast.parse(text, mode="eval").body, size)
        except (KeyError, SyntaxError, TypeError):
            yield text, None


def drop_asked(program: Any, is_kept: Callable[[str], bool]) -> None:
    """Remove conditions from a program that keeps others."""
    program._guards_code = [text for text in program._guards_code if is_kept(text)]


def term_of(node: Any, size: Size) -> Term:
    """The term of an expression. Raises KeyError or TypeError if it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return NAMES[type(node.op)], term_of(node.operand, size)
    if isinstance(node, ast.BinOp):
        return NAMES[type(node.op)], term_of(node.left, size), term_of(node.right, size)
    if isinstance(node, ast.BoolOp):
        first, *others = (term_of(value, size) for value in node.values)
        for other in others:
            first = NAMES[type(node.op)], first, other
        return first
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return NAMES[type(node.ops[0])], term_of(node.left, size), term_of(node.comparators[0], size)
    if isinstance(node, ast.Call):
        return CALLS[ast.unparse(node.func)], *(term_of(arg, size) for arg in node.args)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".size()"):
        return size(ast.unparse(node.value).removesuffix(".size()"), ast.literal_eval(node.slice))
    raise TypeError(ast.unparse(node))
