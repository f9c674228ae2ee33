"""The first call of lazy modules makes their parameters, in the graph of a backend that runs it as it is."""
import pytest
import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

import sot


class Scale(LazyModuleMixin, nn.Module):
    cls_to_become = None

    def __init__(self):
        super().__init__()
        self.weight = UninitializedParameter(dtype=torch.float64)

    def initialize_parameters(self, x):
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.weight.materialize((x.shape[-1],), dtype=x.dtype)
                self.weight.fill_(x.shape[0])

    def forward(self, x):
        return x * self.weight


class Unready(Scale):
    def initialize_parameters(self, x):
        pass


def perceptron():
    first, last = nn.LazyLinear(4), nn.LazyLinear(2, bias=False)
    return nn.Sequential(nn.Dropout(0.5), first, nn.ReLU(), nn.LazyBatchNorm1d(), last)


def shared():
    layer = nn.LazyLinear(3)
    return nn.Sequential(layer, nn.Tanh(), layer)


def of_images():
    return nn.Sequential(nn.Unflatten(1, (1, 3)), nn.LazyConv1d(2, 2), nn.LazyInstanceNorm1d(), nn.Flatten())


def frozen():
    module = Scale()
    module.weight = UninitializedParameter(requires_grad=False)
    return module


def half():
    return nn.LazyLinear(4).double()


def step(module, x):
    return module(x.to(next(iter(module.parameters())).dtype)).square().sum()


def forward(module, x):
    return module(x) * 2


def evaluated(module, x):
    module.eval()
    with torch.no_grad():
        return module(x)


def described(module, x):
    return module(x).detach(), repr(module), sorted(module.state_dict())


def trained_inside(module, x):
    module(x.requires_grad_()).sum().backward()
    return [p.grad for p in module.parameters()]


def outcome(call, make, of):
    """Two calls: results, the random state, and the module with its gradients, hooks and classes."""
    torch.manual_seed(0)
    module, x, seen = make(), torch.arange(9.0).reshape(3, 3), []
    for _ in range(2):
        try:
            result = call(of, module, x)
            if isinstance(result, torch.Tensor) and result.requires_grad:
                result.sum().backward()
                result = result.detach()
        except RuntimeError as e:
            result = type(e).__name__
        seen.append(str(result))
    parts = [(type(m).__name__, len(m._forward_pre_hooks), len(m._load_state_dict_pre_hooks),
              sorted(name for name in vars(m) if "_hook" in name)) for m in module.modules()]
    state = [(name, type(p).__name__, str(p.grad), p.tolist() if type(p) is not UninitializedParameter else None)
             for name, p in (*module.named_parameters(), *module.named_buffers())]
    return seen, parts, state, torch.rand(1).item()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("of", [forward, evaluated, described, trained_inside])
@pytest.mark.parametrize("make", [perceptron, shared, of_images, frozen, Scale, Unready])
def test_the_first_call_makes_the_parameters(make, of, backend):
    translated = sot.to_static(lambda of, m, x: of(m, x), backend=backend)
    plain = outcome(lambda of, m, x: of(m, x), make, of)
    assert outcome(translated, make, of) == plain
    assert outcome(translated, make, of) == plain
    if backend == "eager" and of is forward and make is not Unready:
        assert not [c.stopped for c in sot.translation_of(translated).captures if c.stopped]


def test_the_dtype_is_that_of_the_parameter():
    translated = sot.to_static(lambda m, x: m(x), backend="eager")
    for module, x in (nn.LazyLinear(2), torch.ones(1, 3)), (half(), torch.ones(1, 3).double()):
        assert translated(module, x).dtype is x.dtype
        assert module.weight.shape[1] == 3 and type(module) is nn.Linear


def test_an_error_after_the_first_call_leaves_the_function():
    def fails(module, x, i):
        return module(x)[i]

    for call in fails, sot.to_static(fails, backend="eager"):
        module = nn.LazyLinear(2)
        with pytest.raises(IndexError):
            call(module, torch.ones(1, 3), torch.tensor([7]))
        assert type(module) is nn.Linear and module.weight.shape == (2, 3)
        assert bool(module.weight.abs().max() <= 3 ** -0.5)
