"""Exceptions and context managers of Python's language reference."""
from __future__ import annotations

import contextlib
import contextvars
import decimal
import io
import threading
import traceback
import warnings

import torch

from .program import Group

# ---- exceptions ----
exceptions = Group("exceptions")


class Refused(ValueError):
    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code


def fail(x):
    raise Refused("no", code=4)


@exceptions
def caught_and_named(x):
    try:
        fail(x)
    except (KeyError, ValueError) as e:
        return x * e.code, str(e), e.args, isinstance(e, Refused)


@exceptions
def raised_out(x):
    y = x * 2
    if y.shape[0] == 3:
        raise Refused("three rows")
    return y


@exceptions
def causes_and_contexts(x):
    try:
        try:
            fail(x)
        except Refused as e:
            raise RuntimeError("outer") from e
    except RuntimeError as e:
        return x + 1, type(e.__cause__).__name__, e.__suppress_context__, e.__context__ is e.__cause__


@exceptions
def raised_again(x):
    seen = []
    try:
        try:
            {}["key"]
        except KeyError:
            seen.append("inner")
            raise
    except LookupError as e:
        seen.append(repr(e))
    else:
        seen.append("never")
    finally:
        seen.append("finally")
    return x * len(seen), seen


@exceptions
def errors_of_the_language(x):
    found = []
    for f in (lambda: 1 / 0, lambda: [][1],
              lambda: {}["a"], lambda: int("z"), lambda: None.a, lambda: "a" + 1, lambda: nothing):
        try:
            f()
        except Exception as e:
            found.append((type(e).__name__, str(e)))
    return x + len(found), found


@exceptions
def errors_of_operations(x):
    try:
        x @ x
    except RuntimeError as e:
        return x * 2, "shapes" in str(e)


@exceptions
def groups(x):
    try:
        raise ExceptionGroup("several", [ValueError(1), TypeError(2), ValueError(3)])
    except* ValueError as g:
        a = [e.args for e in g.exceptions]
    except* TypeError as g:
        b = len(g.exceptions)
    return x * b, a


@exceptions
def groups_split(x):
    g = ExceptionGroup("g", [ValueError(1), KeyError("k")])
    match_, rest = g.split(ValueError)
    return x * 2, len(match_.exceptions), type(rest.exceptions[0]).__name__, g.subgroup(KeyError).message


@exceptions
def groups_that_are_partly_handled(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), OSError(2)])
        except* ValueError:
            x = x + 1
    except ExceptionGroup as g:
        return x, [type(e).__name__ for e in g.exceptions]


@exceptions
def notes(x):
    try:
        e = ValueError("a")
        e.add_note("more")
        raise e
    except ValueError as caught:
        return x * 2, caught.__notes__


@exceptions
def formatted_exceptions(x):
    try:
        fail(x)
    except Refused as e:
        return x + 1, traceback.format_exception_only(type(e), e), e.__traceback__ is not None


@exceptions
def returns_in_finally(x):
    def f():
        try:
            return x * 2
        finally:
            x.add_(1)
    return f(), x


@exceptions
def warnings_given(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("careful", UserWarning, stacklevel=1)
        y = x * 2
    return y, [str(w.message) for w in seen]


@exceptions
def a_fallback_when_it_fails(x):
    for f in (lambda v: v.view(5, 5), lambda v: v.reshape(4, 3)):
        try:
            return f(x)
        except RuntimeError:
            continue


@exceptions
def stops_of_iteration(x):
    it = iter(x)
    out = []
    while True:
        try:
            out.append(next(it) * 2)
        except StopIteration:
            return out


@exceptions
def exact_decimals(x):
    with decimal.localcontext() as ctx:
        ctx.prec = 4
        d = decimal.Decimal(1) / decimal.Decimal(3)
    return x * float(d), str(d)


# ---- context managers ----
managers = Group("context managers")


class Timer:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(("exit", kind and kind.__name__))
        return self.swallow


@managers
def with_statements(x):
    log = []
    with Timer(log) as t, Timer(log):
        y = x * 2
    return y, log, t.swallow


@managers
def exceptions_swallowed(x):
    log = []
    with Timer(log, swallow=True):
        raise ValueError("gone")
    return x + 1, log


@contextlib.contextmanager
def scaled(module, k):
    before = module.scale
    module.scale = k
    try:
        yield k * 2
    finally:
        module.scale = before


class Holder:
    scale = 1


@managers
def managers_by_generators(x):
    h = Holder()
    with scaled(h, 3) as k:
        y = x * h.scale + k
    return y, h.scale


@managers
def managers_as_decorators(x):
    @torch.no_grad()
    def f(v):
        return v * 2

    @contextlib.contextmanager
    def noted():
        notes.append("in")
        yield
        notes.append("out")
    notes = []

    @noted()
    def g(v):
        return v + 1
    return g(f(x)), notes


@managers
def stacks_of_managers(x):
    log = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(Timer(log))
        stack.callback(log.append, "called")
        y = x * 2
    return y, log


@managers
def suppressed(x):
    with contextlib.suppress(KeyError):
        x = x * 2
        {}["a"]
        x = x * 3
    return x


@managers
def null_and_redirected(x):
    out = io.StringIO()
    with contextlib.nullcontext(5) as n, contextlib.redirect_stdout(out):
        print("hidden")
    return x * n, out.getvalue()


@managers
def locks(x):
    lock = threading.Lock()
    with lock:
        y = x * 2
    return y, lock.locked()


@managers
def returned_from_inside(x):
    log = []

    def f():
        with Timer(log):
            for i in range(3):
                with Timer(log):
                    if i == 1:
                        return x * i
    return f(), len(log)


LEVEL = contextvars.ContextVar("level", default=1)


@managers
def context_variables(x):
    token = LEVEL.set(3)
    try:
        y = x * LEVEL.get()
    finally:
        LEVEL.reset(token)
    return y, LEVEL.get()


@managers
def contexts_run(x):
    def inside():
        LEVEL.set(5)
        return x * LEVEL.get()
    return contextvars.copy_context().run(inside), LEVEL.get()


@managers
def closing_and_files(x):
    class Resource:
        open = True

        def close(self):
            self.open = False
    r = Resource()
    with contextlib.closing(r) as same:
        y = x * 2
    return y, same.open


class Scope(contextlib.ContextDecorator, contextlib.AbstractContextManager):
    depth = 0

    def __enter__(self):
        Scope.depth += 1
        return self

    def __exit__(self, *exc):
        Scope.depth -= 1


@managers
def classes_of_contextlib(x):
    @Scope()
    def f(v):
        return v * Scope.depth
    return f(x), Scope.depth


