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
