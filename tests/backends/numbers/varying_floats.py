"""Programs with a float that changes from call to call: how often they are compiled, and what they compute."""
import torch

import sot
from sot.backends import lookup_backend


class Compiling:
    """A backend that counts the graphs that it compiles."""

    def __init__(self, inner="aot_eager"):
        self.graphs, self.inner = 0, lookup_backend(inner)

    def __call__(self, gm, inputs):
        self.graphs += 1
        return self.inner(gm, inputs)


def outcome(function, start, value, seed=0):
    """Results, gradient and state of the generator of a call."""
    torch.manual_seed(seed)
    x = start.clone().requires_grad_()
    results = function(x, value)
    results = results if isinstance(results, (tuple, list)) else [results]
    total = sum((r * r).sum() for r in results if r.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    return [r.detach() for r in results], x.grad, torch.get_rng_state()


def check_compiled(fn, start, backend, tolerance=2e-5):
    """Results that have nothing in common are compiled apart, so a call may make several graphs."""
    translated, graphs = sot.to_static(fn, backend=backend), []
    for i in range(5):
        value = 0.3 * 0.9 ** i
        torch.testing.assert_close(outcome(translated, start, value, i), outcome(fn, start, value, i), rtol=tolerance,
                                   atol=tolerance, equal_nan=True)
        graphs.append(backend.graphs)
    assert graphs[-1] == graphs[1] and not any(c.stopped for c in translated.captures)
    assert len(translated.captures) == 2


def check_as_it_is(fn, start):
    """The backend ``eager`` runs the operation itself, with the float."""
    translated = sot.to_static(fn, backend="eager")
    for i in range(4):
        value = 0.3 * 0.9 ** i
        torch.testing.assert_close(outcome(translated, start, value), outcome(fn, start, value), rtol=0, atol=0,
                                   equal_nan=True)
    assert len(translated.captures) == 2 and not any(c.stopped for c in translated.captures)
