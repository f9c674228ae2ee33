"""Functions of torch in Python that are one node, and those that are executed as code."""
import pytest
import torch
from harness import Programs, check, check_by
from torch.overrides import TorchFunctionMode

X = torch.arange(12.0).reshape(3, 4) / 5 - 1
whole = Programs()


@whole
def sums(x):
    mask = x > 0.2
    return torch.masked.sum(x, 1, mask=mask), torch.masked.mean(x, 1, mask=mask), torch.masked.amax(x, 0, mask=mask)


@whole
def softmax(x):
    return torch.masked.softmax(x, 1, mask=x > 0.5), torch.masked.log_softmax(x, dim=-1, mask=x > -0.5)


@whole
def norms(x):
    return torch.masked.normalize(x, 2.0, 1, mask=x > 0.5), torch.masked.var(x, 1, mask=x > -0.5)


@whole
def without_a_mask(x):
    return torch.masked.sum(x, 1), torch.masked.prod(x, 0, mask=torch.tensor([True, False, True, True]))


@pytest.mark.parametrize("leaf", [False, True])
@whole.each
def test_masked(fn, leaf):
    check(fn, X.clone().requires_grad_(leaf), graphs=1, breaks=0)


class Names(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_modes_see_what_the_functions_call():
    def fn(x):
        with Names() as mode:
            y = torch.masked.sum(x, 1, mask=x > 0.2)
        return y, mode.names
    check(fn, X)


def decorators_for_scripts(x):
    @torch.jit.ignore
    def ignored(v):
        return v * 2

    @torch.jit.unused
    def unused(v):
        return v + 1
    values = torch.jit.annotate(list[torch.Tensor], [])
    values.append(x)
    return ignored(x) + unused(x), torch.jit.isinstance(values, list[torch.Tensor]), torch.jit.isinstance(x, (int, str))


def schemas(x):
    operator = torch.ops.aten.add.Tensor
    return x + 1, operator._schema.name, operator._schema.overload_name, str(operator), [
        argument.name for argument in operator._schema.arguments]


def test_what_torch_adds_for_scripts_and_operators_is_followed():
    check_by("eager", decorators_for_scripts, torch.ones(3), breaks=0)
    check_by("eager", schemas, torch.ones(3))
    check_by("eager", lambda x: (x + 1, torch.ops.aten.add.Tensor._schema.name), torch.ones(3), breaks=0)
