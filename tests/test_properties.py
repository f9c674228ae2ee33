"""Random programs, put together of a few kinds of statements, do translated what they do in plain Python."""
from __future__ import annotations

import textwrap

import torch
from harness import check
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import sot

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(-3, 5)
KEYS = st.sampled_from(["'k'", "'m'", "a", "b"])
ATOMS = st.one_of(NAMES, NUMBERS.map(str), st.sampled_from(["len(items)", "items[-1]", "x.shape[0]", "box.n"]))
EXPRESSIONS = st.one_of(ATOMS, st.tuples(ATOMS, st.sampled_from(["+", "-", "*", "//", "%"]), ATOMS).map(" ".join))
CONDITIONS = st.tuples(EXPRESSIONS, st.sampled_from(["<", "==", "!=", "in items or 0 <", "and b or"]), ATOMS).map(
    " ".join)
TENSORS = st.sampled_from(["x = x + {e}", "x = x * 2 - {e}", "y = x.sum() + {e}; x = x + y", "items.append(x.sum())",
                           "table['x'] = x; x = table['x'] - 1", "alias = x; x = alias + y"])
BREAKS = st.sampled_from(["a = int(float(x.sum())) % 5", "if x.sum() > {e}: b = b + 1", "log.append(float(x[0]))",
                          "c = c if bool((x > {e}).any()) else {e}"])
CHANGES = st.sampled_from([
    "items.append({e})", "items[0] = {e}", "items.pop()", "items = items[1:] + [{e}]", "items += [{e}, {e}]",
    "table[{k}] = {e}", "del table[{k}]", "table = dict(table); table[{k}] = items", "b = table.get({k}, {e})",
    "box.n += {e}", "a, b = b, a", "*items, c = [*items, {e}]", "other = items; other.insert(0, {e})", "del c; c = {e}",
    "log.append(({e}, [*table], len(items)))", "c = (lambda v, w=a: v + w + b)({e})", "c = [v + a for v in range({e})]",
    "b = f'{{a}}:{{len(items)}}'", "a = next((v for v in range(9) if v > {e}), a)", "nonlocal_()",
    "raise ValueError({e})", "assert {e}, a", "it = iter(items); a = next(it); log.append(len([*it]))"])


@st.composite
def simple(draw):
    line = draw(st.one_of(st.tuples(NAMES, EXPRESSIONS).map(" = ".join), TENSORS, BREAKS, CHANGES))
    return line.format(e=draw(EXPRESSIONS), k=draw(KEYS)) if "{" in line else line


@st.composite
def compound(draw, blocks):
    kind = draw(st.sampled_from(["if", "for", "while", "try", "finally", "with", "def"]))
    body, other = (textwrap.indent(draw(blocks), "    ") for _ in range(2))
    leave = draw(st.sampled_from(["", "    if a > b: break\n", "    if c == 2: continue\n"]))
    if kind == "if":
        return f"if {draw(CONDITIONS)}:\n{body}else:\n{other}"
    if kind == "for":
        over = draw(st.sampled_from(["range(3)", "items[:3]", "[*table]", "enumerate('ab')", "list(table.items())"]))
        return f"for v in {over}:\n{leave}{body}else:\n{other}"
    if kind == "while":
        return f"fuel = 3\nwhile fuel > 0:\n    fuel -= 1\n{leave}{body}"
    if kind == "try":
        return f"try:\n{body}except (ValueError, TypeError, KeyError) as e:\n    log.append(type(e).__name__)\n{other}"
    if kind == "finally":
        return f"try:\n{body}finally:\n{other}"
    if kind == "with":
        return f"with Quiet(log):\n{body}"
    return f"def inner(a, x):\n    nonlocal b, c, items, table, y\n{body}    return a, x\na, x = inner(b, x)\n"


@st.composite
def block(draw, inner):
    return "".join(s if s.endswith("\n") else s + "\n" for s in draw(st.lists(inner, min_size=1, max_size=4)))


BLOCKS = block(st.one_of(simple(), compound(block(st.one_of(simple(), simple(), compound(block(simple())))))))


class Quiet:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")

    def __exit__(self, kind, value, trace):
        self.log.append(kind and kind.__name__)
        return kind is KeyError


class Box:
    n = 1


def function_of(body: str):
    source = f"""def program(x):
    a, b, c = 1, 2, 3
    items, table, log, box, y = [1, 2, 3], {{'k': 1, 2: 'two'}}, [], Box(), 0
    def nonlocal_():
        nonlocal a, items
        a = a + 1
        items = items + [a]
    try:
{textwrap.indent(body, ' ' * 8)}    except Exception as e:
        log.append((type(e).__name__, str(e), type(e.__context__).__name__))
    return a, b, items, table, log, box.n, x, y
"""
    namespace = {"Quiet": Quiet, "Box": Box, "__name__": __name__}
    exec(compile(source, "<program>", "exec"), namespace)
    return source, namespace["program"]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(BLOCKS)
def test_random_programs(body):
    source, program = function_of(body)
    note(source)
    sot.reset()
    check(program, torch.arange(1.0, 5.0), again=False)
