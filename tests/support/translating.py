"""What tests of the public API share: a function, and one check that reads like a sentence."""

import torch

X = torch.tensor([-1.0, 0.5, 2.0])


def check(translated, plain, backend, *args, graphs=1, **kwargs):
    """Two calls agree with plain Python, and the first alone captures."""
    wanted = plain(*args, **kwargs)
    for _ in range(2):
        assert torch.equal(translated(*args, **kwargs), wanted)
        assert len(backend.graphs) == graphs


def scale(x, k=2):
    """Scales."""
    return torch.relu(x) * k


scale.note = "a function's own attribute"
