"""A captured function changes weights in place after it has used them. Python does what a backend cannot compile."""
import copy

import pytest
import torch
from torch import nn

import sot


def halved(model, x):
    y = model(x)
    y = model(y)
    with torch.no_grad():
        model.weight.mul_(0.5)
        model.bias.zero_()
    return y


def loaded_again(model, x):
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    y = model(model(x))
    model.load_state_dict({name: value * 2 for name, value in saved.items()})
    return y


def clipped_before_use(model, x):
    with torch.no_grad():
        model.weight.clamp_(-0.3, 0.3)
    return model(model(x))


@pytest.mark.parametrize("fn", [halved, loaded_again, clipped_before_use])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_weights_are_changed_as_in_plain_python(fn, backend):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    plain = copy.deepcopy(model)
    translated = sot.to_static(fn, backend=backend)
    for n in range(3):
        x = torch.arange(6.0).reshape(2, 3) + n
        torch.testing.assert_close(translated(model, x), fn(plain, x))
        torch.testing.assert_close(list(model.parameters()), list(plain.parameters()))


def test_the_report_names_the_change_that_the_backend_cannot_compile():
    model = nn.Linear(3, 3)
    translated = sot.to_static(halved, backend="aot_eager")
    translated(model, torch.ones(2, 3))
    assert "mul_ of a weight whose value a backward pass needs" in str(translated.captures[-2].stopped)


def loads_for_one_model(weight, model, x, y):
    with torch.no_grad():
        weight.copy_(y)
    return x.sin() @ model, x.cos() @ weight


def draws_after_the_change(weight, model, x, y):
    with torch.no_grad():
        weight.copy_(y)
    torch.manual_seed(3)
    return x @ weight + torch.rand(3) + model


@pytest.mark.parametrize("program", [loads_for_one_model, draws_after_the_change])
def test_a_weight_that_one_part_changes_is_saved_by_another(program):
    found = []
    for call in (program, sot.to_static(program, backend="aot_eager")):
        torch.manual_seed(0)
        weight, model = (torch.nn.Parameter(torch.rand(3, 3)) for _ in range(2))
        for _ in range(3):
            x, version = torch.rand(3, 3, requires_grad=True), weight._version
            results = call(weight, model, x, torch.rand(3, 3))
            for result in results if isinstance(results, tuple) else (results,):
                result.square().sum().backward()
            found.append([weight._version - version, x.grad, weight.grad.clone(), model.grad.clone()])
    assert len(found) == 6
    torch.testing.assert_close(found[3:], found[:3])


def test_a_part_changes_a_buffer_and_its_detached_view():
    """The part before has made the view. AOTAutograd refuses inputs of a graph with gradients that share memory so."""
    def program(x, scale, seen):
        seen += 1
        hidden = torch.tanh(x * scale)
        view = seen.detach()
        view.normal_()
        seen += 1
        return torch.tanh(hidden * scale), x * 2, x.sum(), view.detach()

    def called(call):
        torch.manual_seed(0)
        x, scale = (torch.nn.Parameter(torch.rand(4)) for _ in range(2))
        seen = torch.zeros(())
        result, double, total, view = call(x, scale, seen)
        (result + double + total).sum().backward()
        return result, double, total, view, seen, x.grad, scale.grad, view.data_ptr() == seen.data_ptr()
    torch.testing.assert_close(called(sot.to_static(program, backend="aot_eager")), called(program))
