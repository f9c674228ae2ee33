"""Random programs over shapes, at random sizes: results are Python's, and captures do not grow with the sizes."""
from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_dynamic_shapes import captured

# Each step is a line over ``x`` (b, t, c), its sizes, and an int ``n`` that follows from them.
STEPS = (
    "x = x + n", "x = x * b - t", "x = x.transpose(1, 2).contiguous()", "x = x.reshape(b, -1, 1) if n > 7 else x",
    "x = x[: n % x.shape[0] + 1]", "x = x[x.shape[0] // 2:]", "x = torch.cat([x, x], 0)", "x = x.sum(1, keepdim=True)",
    "x = x.expand(-1, -1, -1) + x.mean()", "n = n * 2 + len(x)", "n = max(n, x.shape[1]) - min(n, 3)",
    "n = n // 2 + x.numel() % 5", "x = x - torch.arange(x.shape[-1])", "x = x.flatten(1).unsqueeze(-1)",
    "x = x + torch.zeros(x.shape[0], 1, x.size(-1))", "n = int(n / 2) + round(t / 3)", "x = x * (x.shape == x.size())",
    "x = x.clone(); x[-1] += n", "x = torch.nn.functional.pad(x, (0, 1))", "x = x.view(x.shape[0], -1, x.shape[2])",
    "x = x.softmax(-1)", "x = x.repeat(1, 2, 1)", "n = n ** 2 % 11", "print(n, x.shape, f'{b}x{t}')",
    "sot.graph_break()", "x = x.unbind(0)[0][None]", "h = x; h.add_(1)", "x = x @ x.mT",
    "x = torch.full((x.shape[0], n % 3 + 1, 2), n / 4)", "n = n + x[-1].storage_offset()",
)
STEADY = [step for step in STEPS if not any(word in step for word in ("if", "break", "unbind"))]
SIZE = st.integers(0, 6) | st.integers(2, 40)


def program(steps):
    lines = ["b, t, c = x.shape", "n = b + t", *steps, "return x, n, x.shape"]
    source = "def f(x):\n" + "".join(f"    {line}\n" for line in lines)
    names: dict = {}
    exec(source, {"torch": torch, "sot": __import__("sot"), "__name__": "shapes"}, names)
    return names["f"]


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5),
       st.lists(st.tuples(SIZE, SIZE, SIZE), min_size=3, max_size=6))
def test_results_are_pythons(steps, sizes):
    f = program(steps)
    captured(f, [lambda s=s: (torch.arange(float(s[0] * s[1] * s[2])).view(s),) for s in sizes
                 if works(f, s)])


def works(f, size) -> bool:
    """Does the program run at this size? What it raises is specified elsewhere."""
    try:
        f(torch.zeros(size))
    except Exception:  # noqa: BLE001 - a program made at random
        return False
    return True


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.sampled_from(STEADY), min_size=1, max_size=4))
def test_captures_do_not_grow_with_the_sizes(steps):
    f = program(steps)
    sizes = [(n, n + 7, 24 + n) for n in range(10, 26, 2)]
    captures = captured(f, [lambda s=s: (torch.arange(float(s[0] * s[1] * s[2])).view(s),) for s in sizes
                            if works(f, s)])
    assert len(captures) <= 4, (steps, [c.recompiled_because for c in captures])
