"""``mode``: passed to a backend that knows it, refused by name by one that does not."""
import pytest
import torch
from torch import nn

import sot
from sot.backends import ModeError, lookup_backend, with_mode

X = torch.linspace(-1, 1, 6)


class Thrifty:
    """A backend with a mode."""

    name = "thrifty"

    def __init__(self):
        self.asked, self.modes = [], {"slow": self.slow}

    def __call__(self, gm, inputs):
        self.asked.append("default")
        return gm.forward

    def slow(self, gm, inputs):
        self.asked.append("slow")
        return gm.forward


@pytest.mark.parametrize(("mode", "asked"), [(None, "default"), ("default", "default"), ("slow", "slow")])
def test_the_backend_is_asked_for_its_mode(mode, asked):
    backend = Thrifty()
    for target in lambda x: x.sin(), nn.Identity():
        f = sot.to_static(lambda x, target=target: target(x) + 1, backend=backend, mode=mode)
        f(X)
    assert backend.asked == [asked] * 2
    assert asked == "default" or "mode 'slow'" in str(f.settings)


@pytest.mark.parametrize(("backend", "mode", "message"), [
    ("eager", "reduce-overhead", "backend 'eager' has no mode 'reduce-overhead'. It has no modes but 'default'."),
    (Thrifty(), "slwo", "backend 'thrifty' has no mode 'slwo'. Did you mean 'slow'. It has 'default', 'slow'."),
    ("inductor", "fast", "backend 'inductor' has no mode 'fast'. It has 'default', .*'reduce-overhead'"),
    ("eager", 3, "has no mode 3"),
])
def test_another_is_refused_when_the_function_is_decorated(backend, mode, message):
    with pytest.raises(ModeError, match=message):
        sot.to_static(lambda x: x, backend=backend, mode=mode)
    assert issubclass(ModeError, ValueError) and issubclass(ModeError, sot.backends.BackendError)


def test_inductor_gets_what_the_mode_of_torch_compile_sets():
    from torch._inductor import list_mode_options

    inductor = lookup_backend("inductor")
    assert with_mode(inductor, "max-autotune").options == list_mode_options("max-autotune")
    assert with_mode(inductor, "default") is inductor


@pytest.mark.slow
def test_inductor_computes_the_same_in_a_mode():
    f = sot.to_static(lambda x: (x.sin() + 1) * x, backend="inductor", mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(f(X), (X.sin() + 1) * X)


def test_explain_and_a_copy_keep_the_mode():
    backend = Thrifty()
    f = sot.to_static(lambda x: x.sin(), backend=backend, mode="slow")
    sot.explain(f)(X)
    f.again(lambda x: x.cos())(X)
    assert backend.asked == ["slow", "slow"]
