"""Context variables and ``threading.local``: read under guards, changed in the order of the program, in one graph."""
import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from harness import Programs, check

import sot

X = torch.arange(1.0, 5.0)
SCALE = contextvars.ContextVar("scale", default=2)
UNSET = contextvars.ContextVar("unset")
LOCAL = threading.local()
LOCAL.depth = 3
LOCAL.items = [1]
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@program
def a_variable_and_its_default(x):
    return x * SCALE.get() + SCALE.get(7), UNSET.get(5), SCALE.name


@program
def a_variable_without_a_value(x):
    try:
        return UNSET.get()
    except LookupError as e:
        return x + 1, e.args[0] is UNSET


@program
def a_variable_of_the_call(x):
    var = contextvars.ContextVar("var", default=1)
    token = var.set(3)
    scaled = x * var.get()
    var.reset(token)
    return scaled, var.get(), var.name


@program
def a_variable_of_the_call_without_a_value(x):
    first, second = contextvars.ContextVar("var"), contextvars.ContextVar("var")
    second.set(x)
    try:
        first.get()
    except LookupError as e:
        return x * first.get(2), second.get(), e.args[0] is first, len({first, second})


@program
def a_variable_of_the_call_in_contexts(x):
    var = contextvars.ContextVar("var", default=x)
    empty = contextvars.copy_context()
    var.set(1)
    context = contextvars.copy_context()
    context.run(var.set, 5)
    var.set(2)
    return x * context[var], var.get(), empty.run(var.get), var in empty, context.get(var)


@program
def set_and_reset(x):
    token = SCALE.set(SCALE.get() + 3)
    try:
        return x * SCALE.get(), token.old_value, token.var is SCALE
    finally:
        SCALE.reset(token)


@program
def nested_values_and_tensors(x):
    outer = UNSET.set(x * 2)
    inner = UNSET.set([UNSET.get() + 1])
    first = UNSET.get()[0]
    UNSET.reset(inner)
    second = UNSET.get()
    UNSET.reset(outer)
    return first, second, UNSET.get(None)


@program
def a_generator_as_context_manager(x):
    import contextlib

    @contextlib.contextmanager
    def scaled(by):
        token = SCALE.set(by)
        try:
            yield
        finally:
            SCALE.reset(token)
    with scaled(4):
        with scaled(5):
            y = x * SCALE.get()
        y = y + SCALE.get()
    return y - SCALE.get()


@program
def attributes_of_the_thread(x):
    LOCAL.depth += 1
    LOCAL.found = x * LOCAL.depth
    y = LOCAL.found + 1
    del LOCAL.found
    LOCAL.depth -= 1
    LOCAL.items.append(LOCAL.items.pop())
    return y, hasattr(LOCAL, "found"), getattr(LOCAL, "other", 1), sorted(LOCAL.__dict__)


@program
def a_local_made_inside(x):
    local = threading.local()
    local.by = 3
    return x * local.by, local.__dict__


def read(x):
    return x * SCALE.get() + getattr(LOCAL, "depth", 0)


def changed(x):
    SCALE.set(SCALE.get() * 2)
    LOCAL.depth = getattr(LOCAL, "depth", 0) + 1
    sot.graph_break()
    return x * SCALE.get() + LOCAL.depth


def test_each_context_and_each_thread_has_its_own():
    f = sot.to_static(read, backend="eager")
    for value in (2, 3, 2, 3):
        context = contextvars.copy_context()
        context.run(SCALE.set, value)
        assert torch.equal(context.run(f, X), X * value + 3)
        assert torch.equal(f(X), X * 2 + 3)
        with ThreadPoolExecutor(1) as pool:
            assert torch.equal(pool.submit(f, X).result(60), X * 2)

    async def task(value):
        SCALE.set(value)
        await asyncio.sleep(0)
        return f(X)

    async def all_tasks():
        return await asyncio.gather(*map(task, range(5)))
    for value, found in enumerate(asyncio.run(all_tasks())):
        assert torch.equal(found, X * value + 3)


def test_changes_stay_in_the_context_and_thread_of_the_call():
    f = sot.to_static(changed, backend="eager")

    def twice(g):
        return [g(X).tolist(), g(X).tolist(), SCALE.get(), vars(LOCAL)]
    for _ in range(3):
        found = []
        for g in (changed, f):
            with ThreadPoolExecutor(1) as pool:
                found.append(pool.submit(contextvars.copy_context().run, twice, g).result(60))
        assert found[0] == found[1]
    assert SCALE.get() == 2 and LOCAL.depth == 3


def test_another_variable_has_another_default():
    f = sot.to_static(lambda x, variable: x * variable.get(), backend="eager")
    for default in (1, 2, 1):
        assert torch.equal(f(X, contextvars.ContextVar("v", default=default)), X * default)


def test_a_failing_graph_leaves_the_context_unchanged():
    def fails(x, index):
        token = SCALE.set(9)
        y = x[index]
        SCALE.reset(token)
        return y
    f = sot.to_static(fails, backend="eager")
    f(X, torch.tensor(1))
    for g in (fails, f):
        context = contextvars.copy_context()
        try:
            context.run(g, X, torch.tensor(10))
        except IndexError:
            assert context[SCALE] == 9


def test_a_variable_that_the_call_makes_and_returns():
    def make(x):
        var = contextvars.ContextVar("var")
        var.set(x * 2)
        return var

    translated = sot.to_static(make, backend="eager")
    first, second = translated(X), translated(X)
    assert first is not second and first.name == "var" and torch.equal(first.get(), X * 2)
