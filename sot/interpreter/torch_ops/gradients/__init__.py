"""``torch.autograd.grad``, ``backward()``, and the ``.grad`` that they set."""
