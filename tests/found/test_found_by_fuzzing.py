"""What the fuzzer has found, each as the small program that is left of it."""
from __future__ import annotations

import collections
import collections.abc
import enum
import gc
import itertools
import warnings

import numpy as np
import pytest
import torch
from harness import Counter, check
from torch.utils.checkpoint import checkpoint

import sot
from sot.support.errors import Reason

X = torch.arange(1.0, 5.0)


def same_for(f, *cases):
    """One translated function, called with several arguments in turn."""
    translated = sot.to_static(f, backend=Counter())
    for case in cases:
        assert str(translated(*case)) == str(f(*case)), case


def test_a_number_that_varies_is_compared_with_a_tensor_of_a_constant():
    def f(x, r):
        y = x * 2
        return ("more" if torch.tensor(1.5) > r else "less"), y
    same_for(f, *((X, r) for r in (0.5, 1.5, 0.5, -1.0, 2.0)))


def test_two_numbers_among_the_inputs_of_a_graph_with_one_name():
    class Box:
        n = 3

    def f(x, box, r):
        for i in (1, 2):
            x[1:] = r
            r = i / box.n
        return x + r
    box = Box()

    def changed(x, n, r):
        box.n = n
        return f(x, box, r)
    same_for(changed, (X.clone(), 3, 0.5), (X.clone(), 4, 1.5), (X.clone(), 2, 0.25), (X.clone(), 9, -1.0))


def test_a_bool_is_subtracted_after_changes():
    def f(x, table):
        table.popitem()
        x[:2] += 1
        return x - True

    for run in (f, sot.to_static(f)):
        x, table = X.clone(), {"a": 1, "b": 2}
        try:
            run(x, table)
        except RuntimeError as e:
            assert "Subtraction" in str(e)
        assert table == {"a": 1} and x[0] == 2


def test_a_generator_that_is_given_up_cleans_up():
    def steps(log):
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    def f(x):
        log = []
        it = steps(log)
        log.append(next(it))
        return x + 1, log
    check(f, X)

    def g(x):
        log = []
        for n in steps(log):
            log.append(n)
            break
        log.append("after")
        return x + 1, log
    check(g, X)

    def h(x):
        log = []
        it = steps(log)
        next(it)
        sot.graph_break()
        del it
        log.append("after")
        return x + 1, log
    check(h, X)

    def run_to_the_end(x):
        log = []
        for n in steps(log):
            x = x + n
        return x, log
    check(run_to_the_end, X, graphs=1, breaks=0)


def test_a_context_that_a_generator_leaves_when_it_is_given_up():
    def steps():
        with torch.no_grad():
            yield 1

    def f(x):
        for _ in steps():
            break
        return x * 2, torch.is_grad_enabled()
    check(f, X)


def test_an_object_that_does_something_when_it_goes():
    class Noisy:
        def __init__(self, log):
            self.log = log

        def __del__(self):
            self.log.append("gone")

    def f(x):
        log = []
        noisy = Noisy(log)
        del noisy
        log.append("after")
        return x + 1, log
    check(f, X)


def test_functions_with_equal_defaults_have_defaults_of_their_own():
    def f(x):
        made = []
        for _ in range(2):
            made.append(lambda n=x.shape[0]: n)
        return x + 1, made

    first, second = sot.to_static(f)(X)[1]
    assert first.__defaults__ == second.__defaults__ == (4,) and first.__defaults__ is not second.__defaults__


def test_output_before_a_change_that_overlapping_memory_forbids():
    def f(x):
        try:
            print("before")
        finally:
            x.add_(x[-1])
        return x

    check(f, torch.ones(3, 3))


def test_a_change_before_an_operation_refuses_its_own_memory():
    def f(x, items):
        x += len(items)
        items.append(3)
        x.index_add_(0, torch.tensor([0]), x[:1])
    check(f, torch.ones(1, 4), [])


def test_a_generator_that_catches_ordinary_exceptions_may_be_given_up():
    def numbers():
        try:
            yield 1
        except (IndexError, KeyError):
            return
        except ValueError as error:
            print(error)

    def f(x):
        return x + next(numbers()) + (2 in Both())      # collections.abc.Sequence.__iter__ is such a one

    check(f, torch.ones(2), graphs=1, breaks=0)


class Both(collections.abc.Sequence):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (1, 2, 3)[i]


def test_tuples_of_constants_that_one_entry_makes_are_several():
    def f(x):
        made = []
        for v in x:
            made += [lambda n=len(made): n, (3, float(v) > 0)]
        return len({*map(id, made)}), len({id(part.__defaults__) for part in made[::2]}), made[1::2]
    check(f, X)


@pytest.mark.parametrize("size", [2, 4, 0])
def test_a_resized_out_is_warned_about_once_at_the_users_line(size):
    def f(x, y):
        z = x * 2
        torch.add(x, 1.0, out=y)
        return y * z
    seen = []
    for run in (f, sot.to_static(f)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert torch.equal(run(X, torch.zeros(size)), (X + 1) * X * 2)
        seen.append([(str(w.message), w.filename, w.lineno) for w in caught])
    assert seen[0] == seen[1] and len(seen[0]) == (size == 2)


def test_a_shared_variable_without_a_value_is_an_unbound_local_after_a_break():
    def f(x, on):
        y = x * float(x[1])
        if on:
            v = 3
        get = lambda: v     # noqa: E731
        try:
            y = y + v
        except NameError as e:
            return type(e), str(e)
        return y * get()
    check(f, X, True)
    check(f, X, False)


@pytest.mark.parametrize("kind", [int, float, complex])
def test_what_a_number_is_not_made_of(kind):
    def f(x):
        try:
            return x * kind({1, 2})
        except TypeError as e:
            return x, str(e)
    check(f, X, graphs=0, breaks=0)


def test_an_exception_from_before_a_break_leaves_calls_with_all_their_frames():
    def f(x, w):
        y = x * 2
        try:
            def inner():
                try:
                    x.copy_(w)
                except (ValueError, IndexError):
                    pass
            inner()
        finally:
            y = torch.sin(w)
        return y
    seen = []
    for run in (f, sot.to_static(f)):
        with pytest.raises(RuntimeError) as caught:
            run(torch.ones(3), torch.ones(4))
        seen.append([entry.name for entry in caught.traceback][1:])
    assert seen[0] == seen[1] == ["f", "inner"]


def test_an_operation_on_data_of_the_graphs_own_raises_at_the_users_line():
    def f(x):
        def inner(x):
            x.index_add_(0, torch.tensor([0]), x[:1])
        y = x * 2
        inner(y.data)
        return y
    seen = []
    for run in (f, sot.to_static(f)):
        with pytest.raises(RuntimeError) as caught:
            run(torch.ones(3))
        seen.append([entry.name for entry in caught.traceback][1:])
    assert seen[0] == seen[1] == ["f", "inner"]


def test_a_number_as_out():
    def f(x, n):
        try:
            return torch.add(x * 2, 1, out=n)
        except (TypeError, RuntimeError) as e:
            return str(e)
    same_for(f, (X, 3), (X, 4), (X, 6))


def test_a_graph_with_a_float_of_numpy_runs():
    def f(x):
        y = torch.randn(4) + x
        y[..., 0] = np.log(np.exp(0.5) - 0.25)
        return y
    translated = check(f, X, graphs=1, breaks=0)
    assert "np." not in translated.captures[0].graph.module.code


def test_variables_of_callers_end_with_their_frames():
    """No exception of capture's keeps a frame alive, and the frames that called it, in a circle of references."""
    log = []

    class Witness:
        def __del__(self):
            log.append("gone")

    def branches(x):
        return 1 if x.sum() > 0 else 2

    def reads(x):
        return range(int(x.sum()))

    def steps(table):
        return {k: v for k, v in sorted(table.items())}      # noqa: C416 - a comprehension that breaks

    def fails(x):
        try:
            torch.ones(2) + torch.ones(3)
        except RuntimeError as e:
            return e
        return x

    def caller(f, *args):
        witness = Witness()     # noqa: F841
        f(*args)

    gc.disable()
    try:
        for f, cases in ((branches, [(X,), (-X,)]), (reads, [(X,), (X * 2,)]), (fails, [(X,)]),
                         (steps, [({},), ({"k": 1},), ({"k": 1, "m": 2},)])):
            translated = sot.to_static(f)
            for case in cases:
                caller(translated, *case)
                assert log == ["gone"], (f, case)
                log.clear()
    finally:
        gc.enable()


def test_an_exception_of_the_graph_while_another_is_handled():
    def f(x):
        try:
            missing = absent    # noqa: F821, F841
        finally:
            y = x[1:]
            y += 1
            x.index_add_(0, torch.tensor([0]), x[:1])
    check(f, X)


@pytest.mark.parametrize("look", [
    float, lambda t: float("4" + t), lambda t: complex(t).real, lambda t: getattr(torch, "a" + t, 0),
    lambda t: hasattr(torch, t)])
def test_text_with_a_number_of_the_graph_is_text(look):
    def f(x):
        text = str(x.sum().item())
        try:
            return look(text), x + 1
        except TypeError as e:
            return str(e)
    check(f, X)


@pytest.mark.parametrize("change", [
    lambda y, v: y.fill_(v), lambda y, v: y.clamp_(-1, v), lambda y, v: y.add_(1, alpha=v), lambda y, v: y.lerp_(y, v),
    lambda y, v: y.masked_fill_(y > 0, v), lambda y, v: y.addcmul_(y, y, value=v), lambda y, v: y.long().fill_(v),
    lambda y, v: y.half().fill_(v), lambda y, v: y.cfloat().fill_(v),
    lambda y, v: y.cfloat().fill_(complex(1, v)), lambda y, v: y.fill_(complex(v, 0)),
    lambda y, v: y.cdouble().masked_fill_(y > 0, complex(v, v)), lambda y, v: y.masked_fill_(y > 0, complex(1, v))])
def test_a_number_that_does_not_fit_a_dtype_is_refused_after_an_effect(change):
    def f(x, items, v):
        x.clamp_(-2, 2)
        items.clear()
        return change(x * 2, v)
    for v in (5e299, 1e20, 2.0):
        check(f, X, [1, 2], v)


BIG = 10 ** 30
WITH_BIG_NUMBERS = {
    "insert": lambda: [1].insert(BIG, 2), "pop": lambda: [1].pop(BIG),
    "empty pop": lambda: [].pop(BIG), "pop of a name": lambda: [].pop("a"), "pop outside": lambda: [1].pop(1),
    "item": lambda: [1][BIG],
    "slice": lambda: (1, 2)[-BIG:], "times": lambda: (1,) * -BIG, "empty times": lambda: [] * BIG,
    "rotate": lambda: collections.deque([1]).rotate(-BIG), "maxlen": lambda: collections.deque([1], BIG),
    "repeat": lambda: itertools.repeat(1, BIG), "product": lambda: itertools.product([1], repeat=BIG),
    "negative product": lambda: itertools.product([1], repeat=-1),
    "combinations": lambda: [*itertools.combinations([1], BIG)],
    "stop of islice": lambda: [*itertools.islice([1], BIG)], "start of islice": lambda: [*itertools.islice([1], -1, 5)],
    "step of islice": lambda: [*itertools.islice([1], 0, 5, 0)]}


@pytest.mark.parametrize("what", WITH_BIG_NUMBERS)
def test_a_number_that_does_not_fit_into_a_parameter_of_c(what):
    function = WITH_BIG_NUMBERS[what]

    def program(x):
        try:
            return function(), x + 1
        except (OverflowError, ValueError, IndexError, TypeError) as e:
            return type(e).__name__, str(e), x - 1
    same_for(program, (X,))


def test_a_refused_view_is_changed_under_inference_mode():
    def program(x):
        with torch.inference_mode():
            x.zero_()
    for _ in range(2):
        views = [torch.cat([X, X]).requires_grad_().split(4)[1] for _ in range(2)]
        program(views[0])
        sot.to_static(program, backend=Counter())(views[1])
        assert views[0].detach().eq(views[1].detach()).all()


@pytest.mark.parametrize("warns", [
    lambda x: float(np.complex64(1 + 2j)), lambda x: float(x.detach().to(torch.complex64).numpy().sum()),
    lambda x: np.float32(3e38) * np.float32(10), lambda x: ~bool(x.dim())])
def test_python_warns_at_the_users_line_where_capture_knows_the_result(warns):
    def program(x):
        x.data = (x * 2).detach()
        return warns(x), x + 1
    seen = []
    for f in (program, sot.to_static(program, backend="eager")):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            result = f(X.clone())
        seen.append((str(result), [(str(w.message), w.category, w.filename, w.lineno) for w in shown]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("change", [lambda x: x.__setitem__(x > 2, 0.0), lambda x: x.masked_fill_(x > 0, 1.0),
                                    lambda x: x.index_fill_(0, torch.tensor([1]), 2.0), lambda x: x.add_(1)])
def test_a_change_of_an_expanded_tensor_warns_or_raises_at_the_users_line(change):
    def program(x):
        y = x * 2
        change(x)
        return x + y
    seen = []
    for f in (program, sot.to_static(program, backend="eager")):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            try:
                result = f(torch.arange(1.).expand(3)).tolist()
            except RuntimeError as e:
                result = str(e)
        seen.append((result, [(str(w.message), w.filename, w.lineno) for w in shown]))
    assert seen[0] == seen[1]


class Level(enum.IntEnum):
    LOW, HIGH = 1, 5


@pytest.mark.parametrize("what", [
    lambda: list(itertools.islice(itertools.count(Level.LOW), 3)),
    lambda: list(itertools.islice(itertools.count(Level.LOW, 2), 3)),
    lambda: list(itertools.islice(itertools.count(True, step=True), 2)),
    lambda: list(itertools.islice(itertools.count(Level.HIGH, 0.5), 2))],
    ids=["of an enum", "by two", "of a bool", "by a float"])
def test_what_a_count_yields(what):
    def f(x):
        made = what()
        return made, [type(v).__name__ for v in made], x + 1
    check(f, X)


def test_an_element_that_a_deque_has_not():
    def f(x):
        try:
            collections.deque([1, 2]).remove("a")
        except ValueError as e:
            return str(e), x + 1
    check(f, X)


def test_a_checkpoint_prints_nothing_of_what_it_raises(capfd):
    def f(x):
        return checkpoint(lambda v: v * torch.rand_like(v), x * 2, use_reentrant=False)
    translated = sot.to_static(f, backend="eager")
    for x in (X, X, torch.arange(4)):
        try:
            translated(x)
        except (RuntimeError, NotImplementedError):
            assert x.dtype is torch.int64
    assert capfd.readouterr() == ("", "")


def test_a_guard_on_the_history_of_a_view_that_has_none():
    """torch raises where such a history is read, in the program and in the explanation of a recompile."""
    def f(x):
        return type(x.grad_fn).__name__, x * 2
    translated = sot.to_static(f, backend="eager")
    base = torch.ones(4, requires_grad=True)
    assert translated(base * 1)[0] == "MulBackward0"
    view = (base * 1).split(2)[1]
    with torch.no_grad():
        view[0] = 0.5
    for call in (f, translated):
        with pytest.raises(RuntimeError, match="Output 1 of Split"):
            call(view)
    assert all(capture.stopped is None or capture.stopped.reason is not Reason.INTERNAL
               for capture in translated.translator.captures)
