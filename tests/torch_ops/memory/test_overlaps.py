"""Changes in place of memory that an operation also reads, or that a tensor has twice. Plain PyTorch changes one
element after the other, or raises; a compiled graph would change a copy.
"""
import pytest
import torch

import sot

ROWS = torch.tensor([1, 0, 3, 2])
CHANGES = {
    "a window twice": lambda x: x.unfold(0, 2, 1).mul_(2),
    "a window of windows": lambda x: x.unfold(0, 2, 1)[0].mul_(2),
    "windows that are set": lambda x: x.unfold(0, 2, 1).copy_(torch.ones(3, 4, 2)),
    "windows apart": lambda x: x.unfold(0, 2, 2).mul_(2),
    "strides that overlap": lambda x: x.as_strided((3, 2), (1, 1)).relu_(),
    "a tensor with windows": lambda x: (x.unfold(0, 2, 1), x.mul_(2)),
    "shifted rows added": lambda x: x[1:].add_(x[:-1]),
    "shifted rows set": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "shifted rows as output": lambda x: torch.add(x[1:], 1, out=x[:-1]),
    "the transpose added": lambda x: x.add_(x.t()),
    "itself added": lambda x: x.add_(x),
    "the other half added": lambda x: x[:2].add_(x[2:]),
    "odd rows added to even ones": lambda x: x[::2].add_(x[1::2]),
    "itself multiplied as a matrix": lambda x: x.addmm_(x, x),
    "itself as output of a product": lambda x: torch.mm(x, x, out=x),
    "itself as output of its parts": lambda x: torch.cat([x[:2], x[2:]], out=x),
    "its own rows added by index": lambda x: x.index_add_(0, ROWS, x),
    "its own rows set by index": lambda x: x.index_put_((ROWS,), x),
    "its own rows scattered": lambda x: x.scatter_(0, ROWS[:, None].expand(4, 4), x),
    "a list with a part": lambda x: torch._foreach_mul_([x, x[0]], 2.0),
    "a list with shifted rows": lambda x: torch._foreach_add_([x, x[1:]], [x, x[:-1]]),
    "a list added to itself": lambda x: torch._foreach_add_([x], [x]),
}
IN_THE_GRAPH = ("windows apart", "itself added", "the other half added", "odd rows added to even ones",
                "a tensor with windows", "a list added to itself")


def outcome(fn):
    x = torch.arange(16.0).view(4, 4)
    try:
        fn(x)
    except RuntimeError as e:
        return str(e).splitlines()[0], x.tolist()
    return x.tolist()


@pytest.mark.parametrize("backend", ["aot_eager", lambda gm, examples: gm.forward])
def test_a_part_of_a_size_that_depends_on_data_changes_in_place(backend):
    """``y[..., -1] += 1`` writes the part to where it is, whatever its size."""
    def f(x):
        y = x[x > 0][:, None] * torch.ones(3)
        y[..., -1] += 1
        return y
    translated = sot.to_static(f, backend=backend)
    for n in range(3, 6):
        x = torch.arange(-2.0, n)
        assert torch.equal(translated(x), f(x))
    assert not any(capture.stopped for capture in sot.translation_of(translated).captures)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CHANGES)
def test_memory_is_changed_as_in_plain_pytorch(name, backend, dynamic):
    translated = sot.to_static(CHANGES[name], backend=backend, dynamic=dynamic)
    want = outcome(CHANGES[name])
    assert [outcome(translated), outcome(translated)] == [want, want]
    has_break = any(capture.stopped for capture in sot.translation_of(translated).captures)
    assert not (name in IN_THE_GRAPH and has_break), [str(c.stopped) for c in sot.translation_of(translated).captures]
