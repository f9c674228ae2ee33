"""CUDA graphs of whole programs, compared with plain PyTorch."""
from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="the package triton is not installed")

from recorder import Memory, full

import sot
from sot.backends.triton import compiler


@pytest.fixture
def recorders(monkeypatch):
    """The recorders of the graphs that are compiled in a test."""
    made: list[Memory] = []

    def recorder(device):
        made.append(Memory())
        return made[-1]
    monkeypatch.setattr(compiler, "Cuda", recorder)
    yield made
    sot.reset()


def translated(fn):
    run = sot.to_static(fn, backend=compiler.Compiler("cpu", interpreted=True, strict=True, mode="reduce-overhead"))

    def call(*args):
        gc.collect()        # see Memory
        return run(*args)
    return call


def model_with_statistics():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2))


def train(model, run, steps=8, **how):
    """Losses, gradients, parameters and buffers of some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = []
    for i in range(steps):
        optimizer.zero_grad(**how)
        x = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(i))
        loss = run(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        told.append([t.detach().clone() for t in (loss, *[p.grad for p in model.parameters()])])
        optimizer.step()
    return told, model.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("set_to_none", [True, False])
def test_training_steps_are_replayed_without_copies(recorders, set_to_none):
    model, other = model_with_statistics(), model_with_statistics()
    buffers = [b.data_ptr() for b in model.buffers()]
    mine = train(model, translated(model), set_to_none=set_to_none)
    torch.testing.assert_close(mine, train(other, other, set_to_none=set_to_none))
    assert [b.data_ptr() for b in model.buffers()] == buffers
    forward, backward = recorders
    assert (forward.recorded, forward.replayed) == (1, 7)
    # The gradient that comes in may have another address once. It is copied in the next recording.
    assert backward.recorded <= 2 and backward.recorded + backward.replayed == 6


@pytest.mark.slow
def test_a_gradient_is_the_memory_of_the_graph(recorders):
    """Autograd takes it over, so it is not copied there either."""
    weight = torch.randn(3, requires_grad=True)
    run = translated(lambda x: x * weight)
    addresses = []
    for i in range(8):
        weight.grad = None
        run(full(i, 3)).backward(full(1, 3))
        assert weight.grad.tolist() == [i] * 3
        addresses.append(weight.grad.data_ptr())
    assert len({*addresses[3:]}) == 1 and recorders[1].replayed == 5


@pytest.mark.slow
def test_gradients_add_up_over_several_backward_passes(recorders):
    def steps(run, weight):
        told = []
        for i in range(15):
            if i % 3 == 0:
                weight.grad = None
            run(full(i, 3)).backward()
            told.append(weight.grad.clone())
        return told
    weight, other = (full(2, 3).requires_grad_() for _ in range(2))
    torch.testing.assert_close(steps(translated(lambda x: (x * weight).exp().log().sum()), weight),
                               steps(lambda x: (x * other).exp().log().sum(), other))
    assert recorders[1].replayed > 8


@pytest.mark.slow
def test_an_input_of_the_program_that_moves_is_changed(recorders):
    def step(total, x):
        total.mul_(0.5).add_(x)
        return total * 2
    run = translated(step)
    for i in range(5):
        mine, theirs = full(i, 3), full(i, 3)
        torch.testing.assert_close((run(mine, full(1, 3)), mine), (step(theirs, full(1, 3)), theirs))
    memory, = recorders
    assert (memory.recorded, memory.replayed) == (1, 4)


@pytest.mark.slow
def test_a_whole_step_changes_parameters_where_they_are(recorders):
    def program():
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()
        return model, step
    (model, step), (other, their) = program(), program()
    run, addresses = translated(step), [p.data_ptr() for p in model.parameters()]
    for i in range(6):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        torch.testing.assert_close(run(x), their(x))
        torch.testing.assert_close(model.state_dict(), other.state_dict())
    assert [p.data_ptr() for p in model.parameters()] == addresses
    assert sum(memory.replayed for memory in recorders) >= 3


@pytest.mark.slow
def test_parameters_that_move_are_changed_as_well(recorders):
    def step(weight, x):
        with torch.no_grad():
            weight -= 0.1 * x
    run = translated(step)
    for i in range(5):
        mine, theirs = (full(i, 3).requires_grad_() for _ in range(2))
        run(mine, full(1, 3))
        step(theirs, full(1, 3))
        torch.testing.assert_close(mine, theirs)
    assert recorders[0].replayed == 4


def test_a_result_that_is_changed_before_the_backward_pass_is_noticed(recorders):
    def steps(run):
        x, told = full(1, 3).requires_grad_(), []
        for _ in range(5):
            y = run(x)
            y.mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
            told.append(y.tolist())
        return told
    torch.testing.assert_close(steps(translated(torch.exp)), steps(torch.exp))


@pytest.mark.slow
def test_random_numbers_differ_from_call_to_call(recorders):
    run, x = translated(lambda x: torch.nn.functional.dropout(x, 0.5) + 0), torch.ones(64)
    torch.manual_seed(3)
    mine = [run(x).clone() for _ in range(5)]
    torch.manual_seed(3)
    torch.testing.assert_close(mine, [torch.nn.functional.dropout(x, 0.5) for _ in range(5)])
    assert recorders[0].replayed == 4


def test_a_graph_of_several_devices_is_not_recorded():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2, device="meta")
    noise = graph.call_function(torch.ops.aten.rand.default, ([2],))
    noise.meta["val"] = torch.empty(2)
    graph.output((x,))
    module = torch.fx.GraphModule({}, graph)
    assert compiler.device_of(module) is None
    noise.target = torch.ops.aten.ones.default
    assert compiler.device_of(module) == torch.device("meta")
