"""Exceptions and ``with``, by the language reference: what is raised, caught, chained, suppressed, cleaned up."""
from __future__ import annotations

import contextlib
import io
import sys
import threading
import traceback

import pytest
import torch
from harness import check

import sot

X = torch.arange(1.0, 5.0)
PROGRAMS: list = []
WITH_BREAKS: list = []


def program(fn):
    """A function of a tensor that is captured as one graph."""
    PROGRAMS.append(fn)
    return fn


def with_breaks(fn):
    """A function of a tensor that is captured in pieces."""
    WITH_BREAKS.append(fn)
    return fn


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", WITH_BREAKS, ids=lambda f: f.__name__)
def test_is_right_with_breaks(fn):
    check(fn, X)


def chain(e):
    """An exception with all that hangs on it."""
    if e is None:
        return None
    return type(e).__name__, e.args, chain(e.__cause__), chain(e.__context__), e.__suppress_context__


class Odd(Exception):
    pass


class Detailed(ValueError):
    def __init__(self, code, detail="none"):
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail

    def __str__(self):
        return f"<{self.code}>"


# ---- try ------------------------------------------------------------------------------------------------------------
def steps(log, raise_in=None, how="fall"):
    for i in range(2):
        try:
            log.append("try")
            if raise_in == "try":
                raise Odd("try")
            if how == "return":
                return "returned"
            if how == "break":
                break
            if how == "continue":
                continue
        except Odd as e:
            log.append(("except", e.args))
            if how == "raise":
                raise KeyError("from except") from None
            if how == "return in except":
                return "returned in except"
        else:
            log.append("else")
            if raise_in == "else":
                raise Odd("else")
        finally:
            log.append(("finally", i))
            if raise_in == "finally":
                raise TypeError("finally")
        log.append("after")
    else:
        log.append("loop ended")
    return "end"


@program
def try_except_else_finally(x):
    log, results = [], []
    for raise_in in (None, "try", "else", "finally"):
        for how in ("fall", "return", "break", "continue", "raise", "return in except"):
            try:
                results.append(steps(log, raise_in, how))
            except Exception as e:
                results.append(chain(e))
    return log, results, x + 1


@program
def finally_overrides(x):
    def returns():
        try:
            return 1
        finally:
            return 2  # noqa: B012

    def swallows():
        try:
            raise Odd
        finally:
            return "swallowed"  # noqa: B012

    def breaks():
        for i in range(3):
            try:
                return i
            finally:
                if i < 2:
                    continue  # noqa: B012
        return "ended"

    def breaks_out():
        while True:
            try:
                raise Odd
            finally:
                break  # noqa: B012
        return "broken out"

    def mutates():
        a = [1]
        try:
            return a
        finally:
            a.append(2)
            a = None
    return returns(), swallows(), breaks(), breaks_out(), mutates(), x + 1


@program
def nested_handlers(x):
    log = []
    try:
        try:
            try:
                raise Odd(1)
            except KeyError:
                log.append("never")
            finally:
                log.append("inner finally")
        except (ValueError, Odd) as e:
            log.append(e.args)
            try:
                {}["k"]
            except LookupError as f:
                log.append((type(f).__name__, f.args, f.__context__ is e))
            raise
    except Odd as e:
        log.append(("again", e.args, e.__context__))
    try:
        e  # noqa: F821
    except NameError as n:
        log.append(type(n).__name__)
    return log, sys.exc_info()[0], x + 1


@program
def selection_of_handlers(x):
    def pick(e):
        try:
            raise e
        except (KeyError, IndexError) as found:
            return "lookup", found.args
        except ArithmeticError:
            return "arithmetic"
        except Odd:
            return "odd"
        except ():
            return "never"
        except:  # noqa: E722
            return "bare", sys.exc_info()[1].args
    return [pick(e) for e in (KeyError("k"), IndexError(), ZeroDivisionError(), Odd, Odd(1), Detailed(5), Odd)], x + 1


@program
def errors_of_python(x):
    def attempt(f):
        try:
            return f()
        except Exception as e:
            return chain(e)
    return ([attempt(f) for f in (lambda: 1 / 0, lambda: [][1], lambda: {}["k"], lambda: None.a, lambda: unknown,  # noqa: F821
             lambda: int("q"), lambda: 1 + "a", lambda: len(5), lambda: iter(5), lambda: next(iter([])),
             lambda: "a" < 1, lambda: (1)(), lambda: [].pop(), lambda: X.no_such)], x + 1)


@program
def chaining(x):
    found = []

    def explicit():
        try:
            raise Odd(1)
        except Odd as e:
            raise ValueError(2) from e

    def implicit():
        try:
            raise Odd(1)
        except Odd:
            raise ValueError(2)  # noqa: B904

    def suppressed():
        try:
            raise Odd(1)
        except Odd:
            raise ValueError(2) from None

    def from_class():
        raise ValueError(2) from Odd

    def both_classes():
        raise ValueError from Odd

    def deeper():
        try:
            try:
                raise Odd(1)
            finally:
                raise KeyError(2)
        except KeyError:
            implicit()

    def in_a_call():
        try:
            raise Odd(1)
        except Odd:
            suppressed()

    def assigned():
        e = Odd(1)
        e.__cause__ = KeyError(2)
        e.__context__ = ValueError(3)
        e.__suppress_context__ = False
        raise e

    def again():
        try:
            raise Odd(1)
        except Odd as e:
            try:
                raise KeyError(2)
            except KeyError:
                raise e  # noqa: B904
    for f in (explicit, implicit, suppressed, from_class, both_classes, deeper, in_a_call, assigned, again):
        try:
            f()
        except Exception as e:
            found.append((f.__name__, chain(e)))
    return found, x + 1


@program
def reraising(x):
    found = []

    def bare():
        try:
            raise Odd("first")
        except Odd as e:
            found.append(e)
            raise

    def through(depth):
        try:
            bare() if depth == 0 else through(depth - 1)
        except Odd as e:
            found.append(e)
            raise e

    def in_helper():
        def helper():
            raise  # noqa: PLE0704
        try:
            raise KeyError("k")
        except KeyError:
            helper()
    try:
        through(2)
    except Odd as e:
        found.append(e)
    try:
        in_helper()
    except KeyError as e:
        found.append(e)
    return len(found), all(f is found[0] for f in found[:-1]), [chain(f) for f in found], x + 1


@program
def own_exceptions(x):
    try:
        raise Detailed(5, detail="d")
    except ValueError as e:
        kept = e
    try:
        raise Odd
    except Odd as e:
        empty = e
    empty.note = "attribute"
    return (kept.code, kept.detail, kept.args, str(kept), isinstance(kept, Detailed), empty.args, str(empty),
            empty.note, str(KeyError("k")), repr(Odd(1, "a")), f"{Odd(2)}", Odd(1) == Odd(1), x + 1)


@with_breaks
def wrong_raises(x):
    def attempt(f):
        try:
            f()
        except Exception as e:
            return chain(e)

    def a_string():
        raise "text"

    def bare():
        raise  # noqa: PLE0704

    def bad_cause():
        raise Odd from 5

    def bad_except():
        try:
            raise Odd
        except "text":
            pass

    def instance_without_arguments():
        raise Detailed
    return [attempt(f) for f in (a_string, bare, bad_cause, bad_except, instance_without_arguments)], x + 1


@with_breaks
def exception_groups(x):
    log = []
    try:
        raise ExceptionGroup("group", [ValueError(1), KeyError("k"), Odd()])
    except* (ValueError, Odd) as e:
        log.append([type(v).__name__ for v in e.exceptions])
        x = x * 2
    except* KeyError as e:
        log.append(e.exceptions[0].args)
        log.append(float(x.sum()))
    return log, x + 1


@with_breaks
def breaks_in_every_clause(x):
    log = []

    def f(raising):
        try:
            log.append(float(x.sum()))
            if raising:
                raise Odd(1)
        except Odd as e:
            log.append((e.args, float((x + 1).sum())))
            log.append(type(sys.exc_info()[1]).__name__)
        else:
            log.append(float((x + 2).sum()))
        finally:
            log.append(float((x + 3).sum()))
        return x * 2
    return f(False), f(True), log, sys.exc_info()[0]


@with_breaks
def handled_exceptions_survive_breaks(x):
    def inner():
        try:
            raise KeyError("inner")
        except KeyError as e:
            n = float(x.sum())
            return n, sys.exc_info()[1] is e, chain(e)
    try:
        raise ValueError("outer")
    except ValueError as e:
        first = inner()
        second = type(sys.exc_info()[1]).__name__, sys.exc_info()[1] is e
        try:
            raise Odd(float((x + 1).sum()))
        except Odd as o:
            third = chain(o)
    return first, second, third, sys.exc_info()[0], x + 1


@with_breaks
def errors_of_c_code_and_torch(x):
    found = []
    for f in (lambda: x @ torch.ones(7), lambda: x.view(3), lambda: torch.cat([]), lambda: x.reshape("a"),
              lambda: complex(x), lambda: bytes("text"), lambda: open("/no/such/file")):
        try:
            f()
        except Exception as e:
            found.append(type(e).__name__)
            try:
                raise Odd(1)
            except Odd as o:
                found.append((o.__context__ is e, type(o.__context__).__name__))
    return found, x + 1


# ---- with -----------------------------------------------------------------------------------------------------------
class Manager:
    def __init__(self, log, name, suppress=False, fail=None):
        self.log, self.name, self.suppress, self.fail = log, name, suppress, fail

    def __enter__(self):
        self.log.append(("enter", self.name))
        if self.fail == "enter":
            raise Odd("enter")
        return self.name

    def __exit__(self, kind, value, trace):
        self.log.append(("exit", self.name, kind and kind.__name__, value and value.args, trace is None))
        if self.fail == "exit":
            raise KeyError("exit")
        return self.suppress


@program
def with_one_and_many(x):
    log = []
    with Manager(log, "a") as a, Manager(log, "b") as (b,), Manager(log, "c"):
        log.append((a, b))
    with (Manager(log, "d") as d, Manager(log, "e")):
        log.append(d)
    return log, x + 1


@program
def with_and_exceptions(x):
    log, results = [], []

    def f(suppress, fail, raising):
        with Manager(log, "outer"), Manager(log, "inner", suppress, fail):
            log.append("body")
            if raising:
                raise Odd("body")
            return "returned"
        return "suppressed"
    for suppress in (False, True, [], [0]):
        for fail in (None, "enter", "exit"):
            for raising in (False, True):
                try:
                    results.append(f(suppress, fail, raising))
                except Exception as e:
                    results.append(chain(e))
    return log, results, x + 1


@program
def with_and_loops(x):
    log = []
    for i in range(4):
        with Manager(log, i, suppress=True):
            if i == 0:
                continue
            if i == 2:
                break
            raise Odd(i)
        log.append(("after", i))
    return log, i, x + 1


@program
def contextlib_managers(x):
    log = []

    @contextlib.contextmanager
    def tracked(name):
        log.append(("in", name))
        try:
            yield name.upper()
        except Odd as e:
            log.append(("handled", e.args))
        finally:
            log.append(("out", name))
    with tracked("a") as a:
        log.append(a)
    with tracked("b"):
        raise Odd("body")
    with contextlib.suppress(KeyError), tracked("c"):
        {}["k"]
    with contextlib.nullcontext(5) as five:
        log.append(five)
    with contextlib.ExitStack() as stack:
        stack.enter_context(tracked("d"))
        stack.callback(log.append, "callback")
        stack.enter_context(tracked("e"))
    return log, x + 1


class Truthy:
    def __init__(self, log):
        self.log = log

    def __bool__(self):
        self.log.append("asked")
        return True


@program
def exit_answers_with_any_object(x):
    log = []
    with Manager(log, "a", suppress=Truthy(log)):
        raise Odd
    return log, x + 1


@with_breaks
def not_a_manager(x):
    found = []
    for wrong in (5, None, [], Manager):
        try:
            with wrong:
                pass
        except Exception as e:
            found.append((type(e).__name__, str(e)))
    return found, x + 1


@with_breaks
def existing_managers(x):
    lock = LOCK
    seen = []
    with lock:
        seen.append(lock.locked())
        x = x * 2
        seen.append(float(x.sum()))
    seen.append(lock.locked())
    try:
        with lock:
            x = x + 1
            raise Odd(float(x.sum()))
    except Odd as e:
        seen.append((e.args, lock.locked()))
    with io.StringIO() as file, lock:
        file.write("text")
        seen.append(file.getvalue())
        x = x + 1
    seen.append((file.closed, lock.locked()))
    for i in range(3):
        with lock:
            if i == 1:
                break
            seen.append(i)
    return x, seen, lock.locked()


LOCK = threading.Lock()


def test_an_existing_manager_as_an_argument(tmp_path):
    def f(x, path):
        with open(path, "w") as file:
            y = x * 2
            file.write(str(float(y.sum())))
            y = y + 1
        return y, file.closed
    check(f, X, str(tmp_path / "written"))
    assert (tmp_path / "written").read_text() == "20.0"


@with_breaks
def breaks_in_with(x):
    log = []
    for suppress in (False, True):
        for raising in (False, True):
            try:
                with Manager(log, "a", suppress) as a, Manager(log, "b"):
                    n = float(x.sum())
                    if raising:
                        raise Odd(n, a)
                    x = x + n
            except Odd as e:
                log.append(e.args)
                x = x - 1
    return x, log


class Reads:
    """A manager that breaks itself."""

    def __init__(self, x, log):
        self.x, self.log = x, log

    def __enter__(self):
        self.log.append(float(self.x.sum()))
        return self.x + 1

    def __exit__(self, kind, *rest):
        self.log.append(float((self.x * 2).sum()))
        return kind is Odd


@with_breaks
def managers_that_break(x):
    log = []
    with Reads(x, log) as y:
        y = y * 2
    with Reads(y, log) as z:
        raise Odd
    return y, z, log


@with_breaks
def managers_of_torch(x):
    log = []
    with torch.no_grad(), contextlib.suppress(Odd):
        log.append(torch.is_grad_enabled())
        with torch.enable_grad():
            n = float(x.sum())
            log.append(torch.is_grad_enabled())
            raise Odd
    log.append(torch.is_grad_enabled())
    with torch.autocast("cpu", enabled=False):
        y = x + n
    return y, log


# ---- exceptions that leave the function -----------------------------------------------------------------------------
def deep(x):
    y = x * 2
    raise Odd("deep", 1)  # line


def middle(x):
    return deep(x + 1) * 2


def leaves_calls(x):
    x = x + 1
    return middle(x)


def leaves_generator(x):
    def g():
        yield x * 2
        raise Odd("in generator", 2)  # line
    return [v + 1 for v in g()]


def leaves_with(x):
    with Manager([], "a"), torch.no_grad():
        y = x + 1
        raise Odd(y.shape[0])  # line


def leaves_finally(x):
    try:
        try:
            raise KeyError("k")
        finally:
            x = x + 1
            raise ValueError("finally")  # line
    finally:
        x = x * 2


def leaves_chain(x):
    y = x * 2
    try:
        try:
            {}["k"]
        except KeyError as e:
            raise Odd("one") from e
    except Odd:
        raise ValueError(y.shape[0])  # line


def leaves_after_a_break(x):
    try:
        raise Odd(float(x.sum()))
    except Odd as e:
        raise ValueError("after", e.args) from e  # line


def leaves_manager(x):
    with Manager([], "a", fail="exit"):
        y = x * 2
        raise Odd("body")


def leaves_builtin(x):
    y = x * 2
    return int("not a number"), y  # line


def leaves_method(x):
    return Leaves().go(x)


class Leaves:
    @property
    def size(self):
        raise AttributeError("in property")  # line

    def go(self, x):
        y = x + 1
        return self.size, y


def leaves_assert(x):
    y = x * 2
    assert y.shape[0] == 5, "five"  # line


def leaves_none(x):
    try:
        raise Odd(1)
    except Odd:
        x = x + 1
        raise KeyError("quiet") from None  # line


def leaves_stop_iteration(x):
    x = x + 1
    raise StopIteration(5)  # line


LEAVING = [leaves_calls, leaves_generator, leaves_with, leaves_finally, leaves_chain, leaves_after_a_break,
           leaves_manager, leaves_builtin, leaves_method, leaves_assert, leaves_none, leaves_stop_iteration]


@pytest.mark.parametrize("fn", LEAVING, ids=lambda f: f.__name__)
def test_what_leaves_the_function_is_pythons(fn):
    translated = sot.to_static(fn, backend="eager")

    def attempt(f):
        try:
            f(X)
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            return chain(e), last.filename, last.lineno, last.name
    want = attempt(fn)
    assert want is not None
    for _ in range(2):
        assert attempt(translated) == want


@pytest.mark.parametrize("fn", LEAVING, ids=lambda f: f.__name__)
def test_what_leaves_a_call_is_caught_outside(fn):
    def f(x):
        try:
            fn(x)
        except Exception as e:
            return chain(e), x * 2
    check(f, X)


def test_the_traceback_has_the_users_frames():
    def names(f):
        try:
            f(X)
        except Odd as e:
            return [frame.name for frame in traceback.extract_tb(e.__traceback__) if frame.filename == __file__][1:]
    translated = names(sot.to_static(leaves_calls, backend="eager"))
    assert [a for a, b in zip(translated, [*translated[1:], None]) if a != b] == ["leaves_calls", "middle", "deep"]


@program
def attributes_of_exceptions(x):
    found = []
    for f in (lambda: Manager.no_such, lambda: Manager([], "a").missing, lambda: unknown, lambda: X.missing):  # noqa: F821
        try:
            f()
        except (AttributeError, NameError) as e:
            found.append((str(e), e.name, type(getattr(e, "obj", None)).__name__))
    try:
        next(iter([]))
    except StopIteration as e:
        found.append(e.value)
    kept = StopIteration(5)
    given = AttributeError("a")
    return found, kept.value, given.name, given.obj, x + 1


def test_exceptions_that_are_returned():
    def f(x):
        try:
            Manager([], "a").missing
        except AttributeError as e:
            kept = e
        return kept, StopIteration(x + 1), SystemExit(3), ImportError("i"), kept.__traceback__
    for fn in (f, sot.to_static(f, backend="eager")):
        kept, stop, leave, no_module, trace = fn(X)
        assert kept.name == "missing" and type(kept.obj) is Manager and torch.equal(stop.value, X + 1)
        assert leave.code == 3 and no_module.msg == "i"
        assert traceback.extract_tb(kept.__traceback__)[-1].lineno == f.__code__.co_firstlineno + 2
        assert trace is kept.__traceback__
