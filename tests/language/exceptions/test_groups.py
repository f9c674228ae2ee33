"""Exception groups and ``except*``."""
from __future__ import annotations

from collections import deque

import pytest
import torch
from harness import Programs, chain, check

X = torch.arange(1.0, 5.0)
program = Programs()


class Grouped(ExceptionGroup):
    def derive(self, excs):
        return Grouped(self.message + "'", excs)


@program
def handled_by_kind(x):
    seen = []
    try:
        raise ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [TypeError("t"), KeyError("k")])])
    except* (TypeError, KeyError) as g:
        seen.append((g.message, [type(e).__name__ for e in g.exceptions[0].exceptions]))
    except* ValueError as g:
        seen.append((str(g), g.args))
    finally:
        seen.append("finally")
    return x * len(seen), repr(seen)


@program
def a_naked_exception(x):
    try:
        raise ValueError("naked")
    except* ValueError as g:
        found = type(g).__name__, g.message, g.exceptions[0].args
    return x * 2, found


@program
def nothing_raised(x):
    try:
        y = x * 2
    except* ValueError:
        y = x
    else:
        y = y + 1
    return y


@program
def raised_in_the_handler(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        except* ValueError as g:
            raise RuntimeError("new") from g
    except ExceptionGroup as e:
        return x + 1, e.message, [chain(i) for i in e.exceptions], str(e)


@program
def raised_again_in_the_handler(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [TypeError(2), ValueError(3)])])
        except* ValueError:
            raise
        except* TypeError:
            x = x + 1
    except ExceptionGroup as e:
        return x, repr(e), chain(e)


@program
def partly_handled(x):
    try:
        try:
            e = ExceptionGroup("g", [ValueError(1), OSError(2)])
            e.add_note("noted")
            raise e from KeyError("cause")
        except* ValueError:
            x = x + 1
    except ExceptionGroup as g:
        return x, [type(e).__name__ for e in g.exceptions], g.__notes__, chain(g)


@program
def split_by_a_function(x):
    g = Grouped("m", [ValueError(1), TypeError(2), Grouped("n", [ValueError(3)])])
    a, b = g.split(lambda e: isinstance(e, ValueError))
    whole, nothing = g.split(Exception)
    return x + 1, repr(a), repr(b), whole is g, nothing, g.subgroup((KeyError, OSError)), a.__suppress_context__


@program
def returned(x):
    return x * 2, ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError("k")])])


@program
def returned_in_part(x):
    errors = [ValueError(1)]
    g = ExceptionGroup("g", errors)
    errors.append(KeyError(2))
    return x * 2, g, g.exceptions, g.args


@program
def of_base_exceptions(x):
    return x + 1, type(BaseExceptionGroup("b", [ValueError(1)])), type(BaseExceptionGroup("b", [KeyboardInterrupt()]))


@program
def wrong_arguments(x):
    found = []
    for args in (("m", []), ("m", [1]), (1, [ValueError()]), ("m",), ("m", [KeyboardInterrupt()]), ("m", 3)):
        try:
            ExceptionGroup(*args)
        except Exception as e:
            found.append((type(e), str(e)))
    for condition in (3, int, (ValueError, 3)):
        try:
            ExceptionGroup("m", [ValueError()]).split(condition)
        except Exception as e:
            found.append((type(e), str(e)))
    return x + 1, found


@program
def wrong_clauses(x):
    found = []
    for kind in (ExceptionGroup, int, (ValueError, 3)):
        try:
            try:
                raise ValueError(1)
            except* kind:
                pass
        except TypeError as e:
            found.append(str(e))
    return x + 1, found


class Rows(list):
    def __repr__(self):
        return f"Rows of {len(self)}"


class Preset(ExceptionGroup):
    def __new__(cls, *args):
        return super().__new__(cls, "preset", [ValueError(1)])


class Renamed(ExceptionGroup):
    def __repr__(self):
        return "renamed " + super().__repr__()


class Unprintable(ValueError):
    def __repr__(self):
        raise LookupError("no text")


@program
def written_after_its_list_has_changed(x):
    errors = [ValueError(x.dim()), TypeError()]
    g = ExceptionGroup("g", errors)
    errors.append(KeyError(2))
    first = repr(g)
    g.exceptions[0].args = (1, g.message)
    return x + 1, first, repr(g), f"{g!r} {g}", [g], g


@program
def written_with_other_sequences(x):
    rows, errors = Rows([ValueError(1)]), (ValueError(1), TypeError([2]))
    found = [repr(ExceptionGroup("g", given)) for given in (rows, errors, [*errors])]
    return x + 1, found, ExceptionGroup("r", rows)


@program
def written_with_other_arguments(x):
    g = ExceptionGroup("g", [ValueError(1)])
    g.args = (1, 2)
    return x + 1, repr(g), repr(Preset(5, 6)), repr(Renamed("r", [ValueError(1)])), g


@program
def written_by_members_that_fail(x):
    try:
        return x, repr(ExceptionGroup("g", [ExceptionGroup("h", (Unprintable(),))]))
    except LookupError as e:
        return x + 1, repr(e)


@program
def written_within_itself(x):
    errors = [ValueError(1), TypeError()]
    g, e = ExceptionGroup("g", errors), KeyError()
    errors[0] = g
    e.args = (e, 1)
    return x + 1, repr(g), repr(e)


@program.each
def test_programs(fn):
    check(fn, X, graphs=1, breaks=0)


def leaves_the_function(x):
    y = x * 2
    raise ExceptionGroup(f"g{y.dim()}", [ValueError("v"), KeyError("k")])


@pytest.mark.parametrize("fn", [leaves_the_function])
def test_exceptions_that_leave(fn):
    check(fn, X)


def of_no_sequence(x):
    found = []
    for given in ({ValueError(1)}, {ValueError(1): 2}, {}.keys(), iter([ValueError(1)]), deque([ValueError(1)])):
        try:
            found.append(repr(ExceptionGroup("g", given)))
        except TypeError as e:
            found.append(str(e))
    return x + 1, found


def test_sequences_that_c_code_refuses():
    check(of_no_sequence, X)
