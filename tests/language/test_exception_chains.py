"""Which exception is handled, and which becomes the context of another: also where breaks and callers come between."""
import contextlib
import sys
import traceback

import pytest
import torch
from harness import check

import sot


def chain(error):
    """The arguments of an exception and of its contexts."""
    found = []
    while error is not None:
        found.append(error.args)
        error = error.__context__
    return found


def in_a_handler(fn, *args):
    """The result of a call that is made while an exception is handled; or the chain of what it raises."""
    try:
        raise ValueError("outer")
    except ValueError:
        try:
            return fn(*args)
        except Exception as e:
            return chain(e)


def asks(x):
    y = x + 1
    return repr(sys.exc_info()[1]), repr(sys.exception()), traceback.format_exc().splitlines()[-1], y.tolist()


def asks_after_a_break(x):
    y = x + 1
    sot.graph_break()
    return repr(sys.exception()), y.tolist()


def catches(x):
    y = x + 1
    try:
        raise KeyError("in")
    except KeyError as e:
        return repr(e.__context__), y.tolist()


def returns_what_it_caught(x):
    y = x + 1
    try:
        raise KeyError("in")
    except KeyError as e:
        return e


def raises_again(x):
    y = x + 1
    raise


def raises_another(x):
    y = x + 1
    sot.graph_break()
    raise KeyError("in")


@pytest.mark.parametrize("fn", [asks, asks_after_a_break, catches, returns_what_it_caught, raises_again,
                                raises_another])
def test_a_function_that_is_called_in_a_handler(fn):
    """It sees the exception that its caller handles; called elsewhere, with the same entries, it sees none."""
    def call(g):
        found = in_a_handler(g, torch.ones(1))
        return chain(found) if isinstance(found, Exception) else found

    first, second = sot.to_static(fn), sot.to_static(fn)
    for _ in range(2):
        assert call(first) == call(fn)
    for translated in (first, second):
        check_elsewhere(fn, translated)
    assert call(second) == call(fn)


def check_elsewhere(fn, translated):
    outcomes = []
    for call in (fn, translated):
        try:
            found = call(torch.ones(1))
            outcomes.append(chain(found) if isinstance(found, Exception) else found)
        except Exception as e:
            outcomes.append((type(e), chain(e)))
    assert outcomes[0] == outcomes[1]


def test_contexts_that_an_exit_stack_puts_right():
    """A ``finally`` that raises, called by plain code which handles: nothing is left behind in the thread's state."""
    def nested(first, second):
        try:
            raise first
        finally:
            raise second

    def run(fn):
        errors = [ValueError(i) for i in range(6)]
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(fn, errors[4], errors[5])
                stack.callback(fn, errors[2], errors[3])
                raise errors[1]
        except ValueError as e:
            return chain(e)

    translated = sot.to_static(nested)
    assert run(nested) == run(translated) == run(translated)


def test_what_is_thrown_into_a_generator_keeps_its_context():
    @contextlib.contextmanager
    def raising(n):
        try:
            yield
        finally:
            raise ValueError(n)

    def fn(x):
        try:
            with contextlib.ExitStack() as stack:
                for n in range(3):
                    stack.enter_context(raising(n))
                raise KeyError("first")
        except ValueError as e:
            return [c.args[0] for c in (e, e.__context__, e.__context__.__context__)], x + 1

    check(fn, torch.ones(2), graphs=1)


def test_what_a_generator_handles_becomes_the_context():
    def generator():
        try:
            raise KeyError("handled")
        except KeyError:
            yield

    def fn(x):
        it = generator()
        next(it)
        try:
            it.throw(ValueError("thrown"))
        except ValueError as e:
            return repr(e.__context__), x + 1

    check(fn, torch.ones(2), graphs=1)


def test_what_a_delegating_generator_handles_becomes_the_context():
    def inner():
        yield

    def outer():
        try:
            raise KeyError("handled")
        except KeyError:
            yield from inner()

    def fn(x):
        it = outer()
        next(it)
        try:
            it.throw(ValueError("thrown"))
        except ValueError as e:
            return repr(e.__context__), x + 1

    check(fn, torch.ones(2), graphs=1)


@contextlib.contextmanager
def translating(name):
    try:
        yield name
    except ValueError as e:
        raise KeyError(name) from e


def out_of_nested_managers(x):
    with translating("outer"), translating("inner"):
        raise ValueError(x.shape)


def with_the_traceback_of_another(x):
    try:
        raised(x)
    except ValueError as e:
        raise KeyError("other").with_traceback(e.__traceback__) from None


def without_a_traceback(x):
    try:
        raised(x)
    except ValueError as e:
        raise e.with_traceback(None)


def with_one_that_was_kept(x):
    try:
        raised(x)
    except ValueError as e:
        kept = e.__traceback__
        try:
            again(e)
        except ValueError as same:
            same.__traceback__ = kept
            raise same


def raised(x):
    raise ValueError(x.shape)


def again(e):
    raise e


@pytest.mark.parametrize("fn", [
    out_of_nested_managers, with_the_traceback_of_another, without_a_traceback, with_one_that_was_kept])
@pytest.mark.parametrize("is_caught", [False, True])
def test_the_frames_of_a_traceback(fn, is_caught):
    def caught_inside(x):
        try:
            return fn(x)
        except Exception as e:
            return e, x + 1

    def frames(call):
        try:
            error, _ = call(torch.ones(2))
        except Exception as e:
            error = e
        return [(type(e), [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__)])
                for e in (error, error.__cause__, error.__context__) if e is not None]
    program = caught_inside if is_caught else fn
    assert frames(sot.to_static(program, backend="eager")) == frames(program)
