"""Functions that are generated do the same after the null transform.

SOT_TEST_FULL=1 takes more of them.
"""
import copy
import random
import re
import signal
import types

import pytest
from test_null_transform import FULL, Timeout, alarm, outcome

from sot.bytecode.null_transform import null_code


class Writer:
    """Writes a random function of two arguments: all statements, shallow nesting, bounded loops."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.lines = []
        self.in_loop = False
        self.in_generator = self.chance.random() < 0.2

    def source(self):
        self.lines = ["def f(a, b, c=3, *rest, k=2, **more):", "    x, y, z = 1, a, [1, 2, b]"]
        if self.chance.random() < 0.3:  # cells
            self.lines += ["    def inner(n):", "        nonlocal x", "        x = (x, n, y)[:2]",
                           "        return x"]
        for _ in range(self.chance.randint(2, 5)):
            self.statement(1)
        self.lines.append("    yield x" if self.in_generator else "    return x, y, z")
        return "\n".join(self.lines) + "\n"

    def pick(self, *options):
        return self.chance.choice(options)

    def write(self, depth, text):
        self.lines.append("    " * depth + text)

    def block(self, depth):
        for _ in range(self.chance.randint(1, 3)):
            self.statement(depth)

    def name(self):
        return self.pick("x", "y", "z", "a", "b", "c", "k", "rest", "more", "w")  # w may be unbound

    def atom(self):
        return self.pick(self.name(), self.name(), self.name(), "0", "1", "7", "2.5", "'ab'", "None",
                         "True", "(1, 2)", "-3", "...", "b'q'", "inner")

    def value(self, depth=2):
        if depth == 0:
            return self.atom()
        v = lambda: self.value(depth - 1)  # noqa: E731
        op = self.pick("+", "-", "//", "%", "&", "|", "^", "/")
        compare = self.pick("<", "<=", "==", "!=", ">", ">=", "is", "is not", "in", "not in")
        return self.pick(
            lambda: f"({v()} {op} {v()})",
            lambda: f"({v()} {compare} {v()})",
            lambda: f"({v()} {compare} {v()} < {v()})",
            lambda: f"({v()} {self.pick('and', 'or')} {v()})",
            lambda: f"({v()} if {v()} else {v()})",
            lambda: f"({v()} * 2)",
            lambda: f"{self.pick('-', '+', '~', 'not ')}{self.atom()}",
            lambda: f"[{v()}, *{self.pick('rest', 'z', '(1, 2)')}]",
            lambda: f"{{{v()}: {v()}, **more}}",
            lambda: f"len({{{self.atom()}, {self.atom()}}})",
            lambda: f"{self.name()}[{v()}]",
            lambda: f"{self.name()}[{self.atom()}:{self.atom()}]",
            lambda: f"{self.name()}.{self.pick('real', 'append', 'count', 'no_such')}",
            lambda: f"{self.pick('str', 'len', 'repr', 'helper', 'list', 'inner')}({v()})",
            lambda: f"helper({v()}, k={v()})",
            lambda: f"helper(*{self.name()}, **more)",
            lambda: f"helper({v()}, *rest, k={v()}, **{{'m': {v()}}})",
            lambda: f"'ab'.{self.pick('upper', 'title', 'strip')}()",
            lambda: f"[{v()} for y in {self.pick('z', 'rest', 'range(3)')} if {v()}]",
            lambda: f"[(lambda: (q, {self.name()}))() for q in range(2)]",
            lambda: f"{{q: {v()} for q in (1, 2)}}",
            lambda: f"tuple({v()} for x in z)",
            lambda: f"(lambda n: (n, {v()}))({v()})",
            lambda: f"f'{{{self.name()}!r:>5}}{{{self.name()}}}{{{self.name()}!s}}{{1.5:{{c}}}}'",
            lambda: f"(w := {v()})",
        )()

    def target(self):
        return self.pick("x", "y", "z", "w", "x, w", "x, *w", "z[0]", "z[0:1]", "(x, (y, w))")

    def statement(self, depth):
        simple = (self.assign, self.augment, self.call, self.leave, self.delete)
        nested = (self.if_, self.while_, self.for_, self.try_, self.with_, self.match, self.group)
        kinds = simple if depth > 3 else simple + nested
        self.chance.choice(kinds)(depth)

    def assign(self, depth):
        self.write(depth, f"{self.target()} = {self.value()}")

    def augment(self, depth):
        self.write(depth, f"{self.pick('x', 'y', 'z', 'z[0]')} {self.pick('+=', '|=', '-=')} "
                          f"{self.value(1)}")

    def call(self, depth):
        if self.in_generator:
            self.write(depth, self.pick(f"w = yield {self.value()}", f"yield from {self.value(1)}"))
        else:
            self.write(depth, f"log({self.value()})")

    def leave(self, depth):
        choices = [f"assert {self.value()}, {self.value(1)}", f"raise Problem({self.value()})",
                   f"raise Problem({self.name()}) from KeyError(1)", f"return {self.value()}", "raise"]
        choices += ["break", "continue"] * (3 * self.in_loop)
        self.write(depth, f"if {self.value()}:")
        self.write(depth + 1, self.pick(*choices))

    def delete(self, depth):
        self.write(depth, f"del {self.pick('w', 'z[0]', 'z[1:2]', 'a', 'more')}")

    def if_(self, depth):
        self.write(depth, f"if {self.pick(self.value(), self.name() + ' is None')}:")
        self.block(depth + 1)
        if self.chance.random() < 0.5:
            self.write(depth, "else:")
            self.block(depth + 1)

    def loop(self, depth, head):
        self.write(depth, head)
        before, self.in_loop = self.in_loop, True
        self.write(depth + 1, "tick()")
        self.block(depth + 1)
        self.in_loop = before
        if self.chance.random() < 0.3:
            self.write(depth, "else:")
            self.block(depth + 1)

    def while_(self, depth):
        self.loop(depth, f"while {self.value()}:")

    def for_(self, depth):
        self.loop(depth, f"for {self.pick('x', 'w', 'y')} in {self.pick('range(3)', 'z', 'rest', 'a')}:")

    def try_(self, depth):
        self.write(depth, "try:")
        self.block(depth + 1)
        if self.chance.random() < 0.8:
            kinds = "Problem as w", "TypeError", "(KeyError, Problem)", "Exception as w"
            self.write(depth, f"except {self.pick(*kinds)}:")
            self.block(depth + 1)
            if self.chance.random() < 0.3:
                self.write(depth, "else:")
                self.block(depth + 1)
        else:
            self.write(depth, "finally:")
            before, self.in_loop = self.in_loop, False
            self.block(depth + 1)
            self.in_loop = before

    def group(self, depth):
        self.write(depth, "try:")
        self.write(depth + 1, f"raise ExceptionGroup('g', [Problem({self.atom()}), KeyError(1)])")
        self.write(depth, f"except* {self.pick('Problem', 'KeyError', 'Exception')} as w:")
        self.write(depth + 1, f"log({self.value()})")

    def with_(self, depth):
        self.write(depth, f"with Manager({self.value(1)}){self.pick(' as w', '', ', Manager(0) as x')}:")
        self.block(depth + 1)

    def match(self, depth):
        self.write(depth, f"match {self.value(1)}:")
        for pattern in self.chance.sample(["1 | 2", "[x, *w]", "{'m': w, **y}", "str(w)", "(x, y) if x",
                                           "Point(real=w)", "None"], 2):
            self.write(depth + 1, f"case {pattern}:")
            self.block(depth + 2)
        self.write(depth + 1, "case _:")
        self.block(depth + 2)


class Problem(Exception):
    pass


class Manager:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, kind, value, tb):
        return kind is Problem and bool(self.value)


def helper(*args, k=0, **more):
    return len(args), k, sorted(more)


def space():
    """The globals of a generated function. `tick` ends its loops."""
    logged, ticks = [], iter(range(6))

    def tick():
        if next(ticks, None) is None:
            raise Problem("too long")

    return {"log": logged.append, "logged": logged, "tick": tick, "helper": helper, "inner": repr,
            "Problem": Problem, "Manager": Manager, "Point": int}


ARGUMENTS = [(0, 1), (3, [4, 5]), ([1, 2], "ab", 4, 5, 6), (None, (1,), 2), ({"m": 1}, 2.5, 1, 9)]
BLOCKS = 4
PER_BLOCK = 1500 if FULL else 250


def run_generated(function, args):
    """What a generated function does: its outcome, and what it logged."""
    names = space()
    fn = types.FunctionType(function, names, "f", (3,))
    fn.__kwdefaults__ = {"k": 2}
    logged = names["logged"]
    return outcome(fn, copy.deepcopy(args)), re.sub("0x[0-9a-f]+", "", repr(logged))


def generated(seed):
    source = Writer(seed).source()
    try:
        code = compile(source, f"<seed {seed}>", "exec")
    except SyntaxError:
        return source, None
    return source, next(c for c in code.co_consts if isinstance(c, types.CodeType))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.filterwarnings("ignore")
def test_generated_functions(block):
    raised = compared = 0
    before = signal.signal(signal.SIGALRM, alarm)
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        source, function = generated(seed)
        if function is None:
            continue
        new = null_code(function)
        function = function.replace()  # as fresh as the other
        try:
            signal.setitimer(signal.ITIMER_REAL, 2)
            results = [(run_generated(function, a), run_generated(new, a)) for a in ARGUMENTS]
        except Timeout:
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for args, (expected, got) in zip(ARGUMENTS, results):
            assert got == expected, f"{source}f{args}"
        compared += 1
        raised += any("raises" in expected[0] for expected, _ in results)
    signal.signal(signal.SIGALRM, before)
    assert compared > 0.8 * PER_BLOCK
    assert 0.2 * compared < raised
