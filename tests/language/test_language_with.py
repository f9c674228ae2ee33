"""``with``, by the language reference, and exceptions that leave a function: what the caller and a traceback see."""
from __future__ import annotations

import contextlib
import io
import threading
import traceback

import pytest
import torch
from harness import Programs, chain, check

import sot

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


class Odd(Exception):
    pass


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


class FoundByCode:
    """A descriptor: Python code finds the method that a ``with`` calls."""

    def __get__(self, manager, kind):
        manager.log.append("found")
        return lambda *details: manager.log.append(len(details)) or True


class EnterIsFound(Manager):
    __enter__ = FoundByCode()


class LeaveIsFound(Manager):
    __exit__ = FoundByCode()


@pytest.mark.parametrize("kind", [EnterIsFound, LeaveIsFound])
def test_methods_that_python_code_finds(kind):
    def f(x):
        log = []
        with kind(log, "a", suppress=True) as a:
            y = x * 2
            raise KeyError
        return x + 1, y, a, log
    check(f, X)


class OnlyAsync:
    async def __aenter__(self):
        pass

    async def __aexit__(self, *details):
        pass


class OnlyEnter:
    def __enter__(self):
        pass


OnlyEnter.__module__ = "elsewhere"


def asynchronously(x, manager):
    async def run():
        async with manager:
            pass
    run().send(None)


def synchronously(x, manager):
    with manager:
        pass


@pytest.mark.parametrize("manager", [OnlyAsync(), OnlyEnter(), contextlib.nullcontext(), threading.Lock(), 3],
                         ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("use", [synchronously, asynchronously])
def test_what_is_no_manager(use, manager):
    """Newer versions say which other kind of ``with`` the object supports."""
    def f(x):
        try:
            use(x, manager)
        except (TypeError, StopIteration) as e:
            return x + 1, type(e), str(e)
        return x + 2
    check(f, X)
