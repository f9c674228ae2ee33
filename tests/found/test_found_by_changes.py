"""What the fuzzer has found since its programs have other inputs, and since their surroundings change."""
from __future__ import annotations

from typing import TypedDict

import pytest
import torch

import sot


class Options(TypedDict, total=False):
    k: int


class CallsList(type):
    __call__ = list


class Listed(metaclass=CallsList):
    pass


def both(program, make):
    """What a program gives, raises and changes, plainly and translated."""
    seen = []
    for run in (program, sot.to_static(program, backend="eager")):
        args = make()
        try:
            got = run(*args)
        except Exception as e:  # noqa: BLE001 - to be compared
            got = f"{type(e).__name__}: {e}"
        seen.append((str(got), str(args)))
    assert seen[0] == seen[1]
    return seen[0]


def test_a_class_whose_class_calls_something_else():
    def program(x):
        made = Options(k=1)
        return made, type(made), made | {"m": 2}, Listed((1, 2)), x + 1
    plain = program(torch.ones(1))
    translated = sot.to_static(program, backend="eager", full_graph=True)(torch.ones(1))
    assert str(translated) == str(plain) and type(translated[0]) is dict


@pytest.mark.parametrize("change", [
    lambda x: x.mul_(torch.full((4,), 0.5)), lambda x: x.div_(2), lambda x: x.sin_(), lambda x: x.add_(1j),
    lambda x: x.uniform_(), lambda x: x.index_add_(0, torch.tensor([0]), torch.ones(1))])
def test_results_that_do_not_fit_after_an_effect(change):
    """Fakes do not tell that the kernel will raise, and what was done before it stays done."""
    def program(x, log):
        log.append(1)
        change(x)
        log.append(2)
    assert "Error" in both(program, lambda: (torch.arange(4), []))[0]


@pytest.mark.parametrize("change", [lambda x: x.mul_(2), lambda x: x.copy_(torch.ones(4)), lambda x: x.zero_()])
def test_a_tensor_that_has_its_memory_twice_is_changed(change):
    def program(x, log):
        log.append(1)
        try:
            change(x)
        except RuntimeError as e:
            log.append(str(e))
        return x * 2
    both(program, lambda: (torch.arange(1.0).expand(4), []))


@pytest.mark.parametrize("enter", [torch.set_grad_enabled, torch.set_default_dtype])
def test_a_setting_is_set_to_a_tensor(enter):
    def program(x):
        enter(x[0] > 0)
        return x * 2
    assert "TypeError" in both(program, lambda: (torch.arange(4.0),))[0]
    f = sot.to_static(program, backend="eager")
    with pytest.raises(TypeError):
        f(torch.arange(4.0))
    assert all(c.stopped.reason.name != "INTERNAL" for c in f.captures if c.stopped)


# ---- views that autograd does not let be changed in place, with sizes that vary ------------------------------
def clamped_at_last(x, seen):
    try:
        x.clamp_(-1, 1)
    finally:
        seen["changed"] = x.shape[0]


def a_view_of_a_leaf(n):
    return torch.ones(n, 3, requires_grad=True)[1:]


def one_of_several(n):
    return torch.ones(2 * n, 3, requires_grad=True).split(n)[1]


def a_view_made_without_gradients(n):
    base = torch.ones(n, 3, requires_grad=True) * 2
    with torch.no_grad():
        return base[:]


def a_view_of_a_result(n):
    return (torch.ones(n, 3, requires_grad=True) * 2)[1:]


@pytest.mark.parametrize("make", [a_view_of_a_leaf, one_of_several, a_view_made_without_gradients, a_view_of_a_result])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_view_that_may_not_be_changed_in_place_raises_within_the_program(make, dynamic):
    translated = sot.to_static(clamped_at_last, backend="eager", dynamic=dynamic)
    for n in 4, 4, 6, 5:
        outcomes = []
        for f in clamped_at_last, translated:
            x, seen = make(n), {}
            try:
                f(x, seen)
                outcomes.append((seen, x.tolist(), None))
            except RuntimeError as e:
                outcomes.append((seen, None, str(e)))
        assert outcomes[0] == outcomes[1]


def test_a_view_whose_history_autograd_refuses_may_be_left_as_it_is():
    def program(x):
        y = x * 2
        with torch.no_grad():
            v = x[::2]
            v.zero_()
        print(end="")
        return y.detach()

    def changed(x):
        y = x.sum()
        with torch.no_grad():
            x += 1
        return y.detach()
    for f, make in ((program, lambda: torch.ones(4, requires_grad=True)), (changed, lambda: one_of_several(2))):
        translated = sot.to_static(f, backend="eager")
        for _ in range(2):
            want, got = make(), make()
            assert torch.equal(translated(got), f(want)) and torch.equal(got.detach(), want.detach())
        assert not any(capture.fallback for capture in translated.captures)


def turned(x, seen):
    seen.append("before")
    x.t_()
    seen.append("turned")
    x.add_(1)
    return x * 2


def turned_with_a_new_dimension(x, seen):
    seen.append("before")
    x.unsqueeze_(0)
    seen.append("turned")
    x.mul_(3)
    return x * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [turned, turned_with_a_new_dimension])
def test_a_tensor_that_retains_its_gradient_is_changed_after_a_view_in_place(program, backend):
    """Autograd fails then, at the second change. The graph of a tensor that retains none is used for one that does."""
    translated = sot.to_static(program, backend=backend)
    for retains in (False, True, True, False):
        outcomes = []
        for f in (program, translated):
            x, seen, raised, result = torch.ones(2, 3, requires_grad=True) * 1, [], "", None
            if retains:
                x.retain_grad()
            try:
                result = f(x, seen).tolist()
            except RuntimeError as e:
                raised = str(e)
            outcomes.append((seen, raised, result, x.tolist()))
        assert outcomes[0] == outcomes[1]
        assert bool(outcomes[0][1]) == retains


def at_a_position(x, n):
    with torch.random.fork_rng(devices=[]):
        return x[n + 1]


def at_two_positions(x, n):
    try:
        return x[..., n + 1, 0]
    except IndexError as e:
        return str(e)


@pytest.mark.parametrize("program", [at_a_position, at_two_positions])
def test_the_error_of_an_index_that_varies_has_the_words_of_the_subscription(program):
    translated = sot.to_static(program, backend="eager")
    for n in 2, 2, 4, 1, 4, 3:
        outcomes = []
        for f in (program, translated):
            try:
                outcomes.append(str(f(torch.ones(4, 4), n)))
            except IndexError as e:
                outcomes.append(repr(e))
        assert outcomes[0] == outcomes[1]


def test_a_result_whose_history_autograd_refuses_after_a_backward_pass():
    def program(x):
        x[-1].backward()
        with torch.no_grad():
            view = x[:1]
            x.mul_(2)
        return view.tolist(), x.grad.clone()

    translated = sot.to_static(program, backend="eager")
    for _ in range(2):
        want, got = (f(torch.arange(3.0, requires_grad=True)) for f in (program, translated))
        assert want[0] == got[0] and torch.equal(want[1], got[1])

    def returned(x):
        x[-1].backward()
        with torch.no_grad():
            x.index_add_(0, torch.tensor([0]), x[:1])

    translated = sot.to_static(returned, backend="eager")
    for _ in range(2):
        for f in (returned, translated):
            x = torch.arange(3.0, requires_grad=True)
            with pytest.raises(RuntimeError, match="written-to tensor"):
                f(x)
            assert x.grad.tolist() == [0, 0, 1]
    assert not any(capture.fallback for capture in translated.captures)
