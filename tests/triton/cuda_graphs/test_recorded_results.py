"""CUDA graphs: results are handed out in the memory of the graph, and never overwritten while they are held."""
from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed")

from recorder import Calls, full

from sot.backends.triton.cuda_graphs import PATIENCE
from sot.torch_compat.tensors import watch


# ---- results that the program holds --------------------------------------------------------------------------------
def test_results_that_are_released_are_not_copied():
    calls = Calls(lambda x: [x + 1, x * 2], 2)      # gradients
    addresses = set()
    for i in range(6):
        one, two = calls(full(i))
        assert (one[0].item(), two[0].item()) == (i + 1, 2 * i)
        if i > 0:
            addresses.add((one.data_ptr(), two.data_ptr()))
        del one, two
    assert len(addresses) == 1 and calls.counts == (1, 5)


def test_results_that_the_program_keeps_stay_as_they_are():
    calls = Calls(lambda x: [x + 1], 1)
    xs = [full(i) for i in range(6)]
    kept = [calls(x)[0] for x in xs]
    assert [k[0].item() for k in kept] == [1, 2, 3, 4, 5, 6]
    assert calls.counts == (1, 5), "the first call shows that it is kept"


def test_a_result_that_is_held_at_the_next_call_is_copied_from_then_on():
    calls = Calls(lambda x: [x.sum(), x * 2], 2)
    for i in range(3):
        calls(full(i))
    loss = None
    for i in range(6):
        before = loss
        loss, gradient = calls(full(i))
        assert (loss.item(), gradient[0].item()) == (2 * i, 2 * i)
        assert before is None or before.item() == 2 * i - 2
        del gradient
    assert calls.run.outlive == {0}
    assert calls.memory.replayed == 2 + 5, "one call is launched, because the loss is held for the first time"


def test_a_result_that_is_held_on_and_on_gets_other_memory():
    calls = Calls(lambda x: [x.sum()], 1)
    for i in range(3):
        calls(full(i))
    kept = [calls(full(i))[0] for i in range(12)]
    assert [k.item() for k in kept] == [2 * i for i in range(12)]
    assert calls.counts == (2, 2 + 12 - 1 - PATIENCE), "copies of the first are handed out too late"
    kept = [calls(full(i))[0] for i in range(3)]
    assert [k.item() for k in kept] == [0, 2, 4] and calls.memory.recorded == 2


@pytest.mark.parametrize("holder", ["a view", "a detached", "a storage", "a list", "an array", "autograd"])
def test_whoever_holds_the_memory_of_a_result_keeps_it(holder):
    calls = Calls(lambda x: [x * 2], 1)
    calls(full(0))
    calls(full(1))
    result, = calls(full(2))
    leaf = torch.ones(2, requires_grad=True)
    held = {"a view": result[1:], "a detached": result.detach(), "a storage": result.untyped_storage(),
            "a list": [result], "an array": result.numpy(), "autograd": leaf * result}[holder]
    del result
    calls(full(3))
    match holder:
        case "a storage":
            assert bytes(held)[:4] == bytes(full(4).untyped_storage())[:4]
        case "autograd":
            held.sum().backward()
            assert leaf.grad.tolist() == [4, 4]
        case "a list":
            assert held[0].tolist() == [4, 4]
        case _:
            assert held[0].item() == 4
    assert calls.counts == (1, 2)


def test_a_storage_object_that_was_asked_for_is_no_user():
    calls = Calls(lambda x: [x * 2], 1)
    for i in range(6):
        result, = calls(full(i))
        result.untyped_storage().nbytes()
        result.view(2).untyped_storage().nbytes()
        del result
    assert calls.counts == (1, 5) and not calls.run.outlive


def test_a_result_whose_storage_was_resized_is_not_replayed_into():
    """FSDP frees memory in this way."""
    calls = Calls(lambda x: [x * 2, x.sum()], 2)
    for i in range(8):
        result, total = calls(full(i))
        assert result.tolist() == [2 * i] * 2 and total.item() == 2 * i
        if i == 3:
            result.untyped_storage().resize_(0)
        del result, total
    assert calls.counts == (2, 7) and calls.run.outlive == {0}, "it is copied from then on"


def test_a_result_that_the_program_changes_is_right_at_the_next_call():
    calls = Calls(lambda x: [x * 2], 1)
    for i in range(5):
        gradient, = calls(full(i))
        assert gradient.tolist() == [2 * i] * 2 and gradient._version == 0
        gradient.mul_(100)      # clipped
        gradient.resize_(1)
        del gradient
    assert calls.counts == (1, 4)


@pytest.mark.parametrize("held", [False, True])
def test_results_that_share_memory_do_so_in_each_call(held):
    def both(x):
        y = x * 2
        return [y, y[1:], y.t() if y.dim() > 1 else y, x + 1]
    calls = Calls(both, 4)
    kept = []
    for i in range(5):
        results = calls(full(i, 3))
        kept += results if held else []
        y, part, same, other = results
        part.add_(1)
        assert y.tolist() == same.tolist() == [2 * i, 2 * i + 1, 2 * i + 1] and other.tolist() == [i + 1] * 3
        assert y._version == part._version == same._version == 1
        assert not y._is_view()
        del results, y, part, same, other
    assert calls.counts == (1, 4)
    assert [k[-1].item() for k in kept[::4]] == ([2 * i + 1 for i in range(5)] if held else [])


def test_one_result_at_two_places_is_one_object():
    """Autograd notices a change of a result that it keeps."""
    def twice(x):
        y = x * 2
        return [y, y]
    calls = Calls(twice, 1)
    for i in range(4):
        visible, kept = calls(full(i))
        assert visible is kept
        del visible, kept
    assert calls.counts == (1, 3)


def test_a_result_with_gaps_keeps_its_strides_when_it_is_copied():
    calls = Calls(lambda x: [torch.stack([x, x], -1)[..., 0]], 1)
    kept = [calls(full(i, 3))[0] for i in range(5)]
    assert [k.tolist() for k in kept] == [[i] * 3 for i in range(5)]
    assert {k.stride() for k in kept} == {(2,)} and calls.counts == (1, 4)


def test_results_that_share_memory_as_other_types_are_launched():
    def bits(x):
        y = x * 2
        return [y, y.view(torch.int32)]
    calls = Calls(bits, 2)
    for i in range(4):
        y, same = calls(full(i))
        y.zero_()
        assert same.tolist() == [0, 0]
        del y, same
    assert calls.launched == 4 + 1 and calls.memory.replayed == 0


def test_memory_that_something_else_holds_is_not_replayed_into():
    seen = []       # by an operator of the program

    def remembering(x):
        seen.append(x * 2)
        return [seen[-1]]
    calls = Calls(remembering, 1)
    for i in range(5):
        assert calls(full(i))[0].tolist() == [2 * i] * 2
    assert calls.memory.replayed == 0


# ---- results that are inputs or constants --------------------------------------------------------------------------
def test_a_result_that_is_an_input_is_the_input_of_this_call():
    weight = torch.randn(2, 3)
    calls = Calls(lambda x, w: [x @ w, w.t(), x, x[:, 1:], w.view(2, 3)], 1)
    for i in range(4):
        x = full(i, 1, 2)
        result, turned, same, part, view = calls(x, weight)
        torch.testing.assert_close((result, turned, part), (x @ weight, weight.t(), x[:, 1:]))
        assert same is x and view is not weight
        assert [t.data_ptr() for t in (turned, view, part)] == [weight.data_ptr()] * 2 + [x[:, 1:].data_ptr()]
        version = weight._version
        turned.mul_(1)
        assert weight._version == version + 1
        del result, turned, same, part, view
    assert calls.counts == (1, 3)


def test_inputs_of_one_memory_are_told_apart():
    flat = torch.arange(4.0)
    weight, bias = flat[:2], flat[2:]
    calls = Calls(lambda w, b: [w + b, b, w], 1)
    for _ in range(4):
        total, second, first = calls(weight, bias)
        assert total.tolist() == [2, 4] and second is bias and first is weight
        del total
    assert calls.counts == (1, 3)


@pytest.mark.parametrize("move", [False, True])
def test_a_conjugated_input_is_launched(move):
    x = torch.tensor([1 + 2j, 3 - 1j])
    calls = Calls(lambda x: [x * 2, x.conj()], 1)
    for _ in range(4):
        x = x.clone() if move else x
        double, conjugated = calls(x)
        assert double.tolist() == [2 + 4j, 6 - 2j] and conjugated.tolist() == [1 - 2j, 3 + 1j]
        del double
    assert calls.memory.replayed == 0


def test_an_input_that_is_changed_and_returned_is_that_of_this_call():
    calls = Calls(lambda x: [x.add_(1), x.view(2)], 2, changed=[0])
    xs = [full(i) for i in range(5)]
    for i, x in enumerate(xs):
        same, view = calls(x)
        assert same is x and view.data_ptr() == x.data_ptr() and x.tolist() == [i + 1] * 2
    assert calls.counts == (1, 4)


def test_inputs_are_not_kept_alive():
    calls = Calls(lambda x, w: [x * w, w, w[1:]], 1)
    weight = torch.ones(2)
    for i in range(4):
        calls(full(i), weight)
    released = watch(weight)
    del weight
    assert not released()


def test_an_input_seen_as_another_type_is_launched():
    calls = Calls(lambda x: [x + 1, x.view(torch.int32)], 1)
    x = full(1)
    for _ in range(4):
        _, bits = calls(x)
        assert bits.data_ptr() == x.data_ptr() and bits.dtype == torch.int32
    assert calls.memory.replayed == 0


def test_a_result_that_is_a_constant_of_the_module_is_handed_out_as_it_is():
    constant = full(5, 3)
    calls = Calls(lambda x: [x + constant, constant, constant[1:]], 1, constants=[constant])
    for i in range(5):
        total, same, part = calls(full(i, 3))
        assert total.tolist() == [i + 5] * 3 and same is constant and part.data_ptr() == constant[1:].data_ptr()
        del total
    assert calls.counts == (1, 4)


def test_results_without_elements_and_results_that_are_no_tensors():
    calls = Calls(lambda x, e: [x * 2, x[:0].clone(), None, 7, e], 5)
    empty = torch.empty(0)
    for i in range(4):
        double, nothing, none, seven, same = calls(full(i), empty)
        assert double.tolist() == [2 * i] * 2 and nothing.shape == (0,) and (none, seven) == (None, 7) and same is empty
        assert nothing is not empty
        del double, nothing
    assert calls.counts == (1, 3)


# ---- autograd ------------------------------------------------------------------------------------------------------
def test_nothing_is_replayed_over_what_autograd_keeps():
    calls = Calls(lambda x: [x.sum(), x * 2], 1)        # a loss, and what is kept for the backward graph
    xs = [full(i) for i in range(6)]
    calls(xs[0])
    kept = [calls(x)[1] for x in xs[1:4]]       # three forward passes, no backward pass in between
    assert [k[0].item() for k in kept] == [2, 4, 6]
    assert calls.memory.replayed == 1
    del kept
    assert calls(xs[4])[1][0].item() == 8
    assert calls.memory.replayed == 2 and not calls.run.outlive, "it is never copied"


def test_what_the_forward_graph_keeps_is_not_copied_for_the_backward_graph():
    forward = Calls(lambda x: [x.sum(), x * 2], 1)
    backward = Calls(lambda kept, seed: [kept * seed], 1, after=3)
    xs, seeds = ([full(start + i) for i in range(7)] for start in (0.0, 3.0))
    for i in range(7):
        loss, kept = forward(xs[i])
        grad, = backward(kept, seeds[i])
        assert grad[0].item() == 2 * i * (3 + i)
        del kept, grad
    assert forward.memory.replayed == 6 and backward.memory.replayed == 4
    assert forward.run.outlive == {0} and set(backward.run.recording.places) == {1}
