"""Text that shows tensors, or objects that say themselves how they are written, costs no graph."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from harness import check

import sot

X = torch.arange(1.0, 4.0)
TWO, BRACES = "%s %s", "{} {}"


class Version:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Version({self.n})"

    def __str__(self):
        return f"v{self.n}"

    def __format__(self, spec):
        return f"<{spec}:{self.n}>"


def conversions(x):
    y = x.sum()
    return y, str(y), repr(x), f"{y} {y:.2f} {x!s} {x!r}", format(y, "8.3f")


def percent(x):
    y, n = x.sum(), x.int().sum()
    return y, "loss %s %.2f %r %d%%" % (y, y, y, 3), "a %5.1f" % y, "%s" % x, "%10s|%d" % (y, n), "%s %s" % (x.shape, n)


def str_format(x):
    y = x.sum()
    return y, "l {} {:.3f} {!r}".format(y, y, y), "k {a} {b:5} {1}{0}{{}}".format(1, 2, a=y, b=2)


def joins(x):
    text = ""
    for i, v in enumerate(x):
        text += f"{i}:{v} "
    return x + 1, text, ", ".join([str(x), "b"]), "a" + str(x) + "b"


def objects(x):
    v = Version(x.shape[0])
    return (x + 1, f"{v} {v:z} {v!r} {v!s:>5}", "{} {:z} {!r} {!s:>5}".format(v, v, v, v),
            "%s %r %5s|%-6s|" % (v, v, v, 1), str([v, (v,)]), "{0} {v}".format(x, v=v))


class Holder(Version):
    def __init__(self, n):
        super().__init__(n)
        self.parts = {"k": n, 3: "three"}

    def __getitem__(self, key):
        return type(key).__name__, key


def fields_that_read_into_values(x):
    v = Holder(x.shape[0])
    return (x + 1, "{0.shape} {0.shape[0]} {0.dtype!s:>15} {t}".format(x, t=(x.shape, 1)),
            "{:{}}|{p.n:{w}d}|{{}}".format(v, 4, p=v, w=5),
            "{0.n:>{1}} {0!r:^9} {0.parts[k]} {0.parts[3]} {0[0]} {0[a-b]} {0:z{1}}".format(v, 7))


def objects_of_tensors(x):
    v = Version(x + 1)
    return x + 1, str(v), f"{[v, x]}", str({"a": x}), str((x,))


def changed_later(x):
    y = x.clone()
    first, view = str(y), y[1:]
    text = f"{view}"
    y[2] = 9
    view.mul_(2)
    x.add_(1)
    return y, first, text, f"{view} {x}"


@pytest.mark.parametrize("fn", [conversions, percent, str_format, joins, objects, fields_that_read_into_values,
                                objects_of_tensors, changed_later])
def test_text_of_tensors_and_objects(fn):
    check(fn, X, graphs=1, breaks=0)


def test_formats_that_do_not_fit():
    def attempt(write, x):
        try:
            return write(x)
        except (TypeError, ValueError) as e:
            return str(e)

    def f(x):
        return x + 1, [attempt(write, x) for write in (
            lambda x: f"{x:.2f}", lambda x: f"{x.sum():d}", lambda x: "%f" % x, lambda x: "%d" % x.sum(),
            lambda x: "%c" % x[0], lambda x: TWO % x, lambda x: BRACES.format(x))]
    check(f, X)


TEMPLATES = ("{} {0}", "{0} {}", "{3}", "{q}", "{0.nope}", "{0:{1:{0}}}", "{0[}", "{0.}", "{0!z}", "{", "{0[9].x}")


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_that_are_refused(template):
    def f(x):
        try:
            return x + 1, template.format(Holder(1), x)
        except (ValueError, LookupError, AttributeError) as e:
            return x + 1, type(e), str(e)
    check(f, X)


def test_text_that_is_looked_at():
    def f(x):
        text = f"{x.sum()}"
        return x + 1, len(text), text.upper(), text == "tensor(6.)", {text: 1}, text[:2], f"{text:>12}"
    check(f, X)


def test_text_around_a_break():
    def f(x):
        y = x + 1
        text = f"{y}"
        y.add_(1)
        n = float(y.sum())
        return text + str(n), f"{y}"
    check(f, X)


def test_text_of_what_requires_grad():
    def f(x):
        y = x * 2
        text = f"{y} {y.sum():.1f}"
        y.add_(1)
        return y, text, str(y)
    check(f, X.clone().requires_grad_())


def test_percent_with_no_values():
    class Nothing(NamedTuple):
        pass

    def f(x, texts):
        try:
            "%s" % Nothing()
        except TypeError as e:
            return x + 1, str(e), [text % Nothing() for text in texts]
    check(f, torch.ones(2), ("a%%b", "ab", ""))


def test_text_made_under_other_print_options():
    def f(x):
        before = repr(x / 3)
        torch.set_printoptions(precision=2)
        np.set_printoptions(precision=1)
        try:
            return before, repr(x / 3), str((x / 3).numpy())
        finally:
            torch.set_printoptions(profile="default")
            np.set_printoptions(precision=8)
    check(f, X)


class Size(int):
    pass


def test_a_subclass_without_a_format_of_its_own_is_formatted_as_its_base():
    """In a with block of a generator, the value is one that capture does not read."""
    def f(x, n):
        with torch.random.fork_rng(devices=[]):
            return f"{n:03d} {n}", format(n, ">5"), x + 1
    check(f, X, Size(3))


def test_containers_in_containers_of_their_kind_and_in_themselves():
    """Since CPython 3.12 the loop variable of a comprehension is a local variable of the function around it."""
    def f(x):
        loop = [Version(1)]
        loop += [loop, (loop,)]
        nested = (1, (Version(2),)), [[Version(3)], {"a": {"b": Version(4)}}]
        return x + 1, repr(nested), f"{loop}"
    check(f, X, graphs=1, breaks=0)


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize("text", ["%d", "no field"])
def test_percent_of_a_str_of_a_subclass_is_a_break_and_no_failure(text):
    def program(x, word):
        try:
            return x + 1, word % 4
        except TypeError as e:
            return x, str(e)
    translated = check(program, torch.ones(2), Word(text))
    assert not any(capture.fallback for capture in sot.translation_of(translated).captures)
