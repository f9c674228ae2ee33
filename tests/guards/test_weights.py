"""Weights of a module that capture has not looked at may be of any dtype and shape; what it has seen is guarded."""
from __future__ import annotations

import copy
import textwrap

import pytest
import torch
from harness import same
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import sot
from sot.guards.tensor_guards import AnyTensorGuard, TensorGuard

X = torch.linspace(-1.0, 2.0, 6).reshape(2, 3)


class Scaled(nn.Module):
    """``body`` is what forward does; ``w`` is a weight of 3 numbers, ``b`` a buffer."""

    def __init__(self, body):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.5, 1.0, -2.0]))
        self.register_buffer("b", torch.ones(3))
        self.body, self.log = body, []

    def forward(self, x):
        return self.body(self, x, self.w, self.b)


def outcome(call, module):
    """What a call gives or raises, and what it leaves in the module."""
    try:
        result, raised = call(X.clone()), None
    except Exception as e:  # noqa: BLE001 - to be compared
        result, raised = None, (type(e), str(e))
    return result, raised, dict(module.named_parameters()), dict(module.named_buffers()), module.log


def pair(body):
    """A plain module, the translated one, and the graphs that have been captured of that."""
    plain = Scaled(body).eval()
    mine, graphs = copy.deepcopy(plain), []
    mine.body = body

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    sot.to_static(mine, backend=backend, dynamic=False)
    return plain, mine, graphs


def agree(plain, mine):
    difference = same(outcome(mine, mine), outcome(plain, plain))
    assert not difference, difference


CHANGES = {
    "a dtype": lambda m: setattr(m.w, "data", m.w.data.double()),
    "a shape": lambda m: setattr(m.w, "data", torch.ones(2, 1)),
    "a shape that is none for it": lambda m: setattr(m.w, "data", torch.ones(5)),
    "strides": lambda m: setattr(m.w, "data", torch.arange(6.0)[::2]),
    "requires_grad": lambda m: m.w.requires_grad_(False),
    "the buffer": lambda m: setattr(m.b, "data", m.b.data.double()),
    "all of it": lambda m: m.double(),
    "another parameter": lambda m: setattr(m, "w", nn.Parameter(torch.ones(3, dtype=torch.float64))),
    "a parameter that is a buffer, too": lambda m: m._buffers.__setitem__("b", m._parameters["w"]),
    "a class": lambda m: setattr(m.w, "__class__", Marked),
}


class Marked(nn.Parameter):
    pass


def unseen(m, x, w, b):
    return torch.sigmoid(x * w) + b


def sizes(m, x, w, b):
    return (x * w).sum() * w.shape[0]


def dtypes(m, x, w, b):
    y = x * w + b
    return y if y.dtype is torch.float32 else -y


def grads(m, x, w, b):
    return (x * w).detach() + 1 if (x * w).requires_grad else x * w


def identity(m, x, w, b):
    y = w.float()
    return y is w, w is b, x * y


def hidden_write(m, x, w, b):
    with torch.no_grad():
        y = w.double()
        y.add_(1)
    return y * 2


def attribute(m, x, w, b):
    y = w.double()
    y.note = 3
    return getattr(w, "note", 0), x * y


def catches(m, x, w, b):
    m.log.append("begin")
    try:
        y = x * w
    except RuntimeError as e:
        m.log.append(str(e))
        y = x
    m.log.append("end")
    return y + b


def classes(m, x, w, b):
    return x * w if type(w) is nn.Parameter else x


def writes(m, x, w, b):
    b.mul_(2)
    return x * w + b


def rows(m, x, w, b):
    return [row * 2 for row in x * w]


def split(m, x, w, b):
    return [*(w * 2).split(1)], x + b


def functions(m, x, w, b):
    return F.layer_norm(F.dropout(x, 0.5, m.training) * w, (3,), w, b)


PROGRAMS = [unseen, sizes, dtypes, grads, identity, hidden_write, attribute, catches, classes, writes, rows, split,
            functions]


@pytest.mark.parametrize("body", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("change", CHANGES.values(), ids=[*CHANGES])
def test_a_weight_that_changes_in_place(body, change):
    plain, mine, _ = pair(body)
    for _ in range(6):      # until it is warm
        agree(plain, mine)
    change(plain), change(mine)
    for _ in range(2):
        agree(plain, mine)
    for m in (plain, mine):
        m._parameters["w"].data = torch.ones(3)
    agree(plain, mine)


@pytest.mark.parametrize(("body", "free", "guarded"), [
    (unseen, "wb", ""), (functions, "wb", ""), (sizes, "b", "w"), (dtypes, "", "wb"), (grads, "b", "w"),
    (rows, "b", "w"), (hidden_write, "b", "w"), (writes, "", "wb")], ids=lambda p: getattr(p, "__name__", p))
def test_guards_are_of_what_was_seen(body, free, guarded):
    guards = [record.guard for record in sot.explain(Scaled(body).eval())(X).guards]
    kinds = {str(g.origin)[-3:-2]: type(g) for g in guards if isinstance(g, (AnyTensorGuard, TensorGuard))}
    del kinds[""]       # of the argument
    assert kinds == {**dict.fromkeys(free, AnyTensorGuard), **dict.fromkeys(guarded, TensorGuard)}


def test_a_weight_that_nobody_has_seen_needs_no_other_capture():
    plain, mine, graphs = pair(unseen)
    for change in ("a dtype", "a shape", "strides", "requires_grad"):
        agree(plain, mine)
        CHANGES[change](plain), CHANGES[change](mine)
        agree(plain, mine)
    assert len(graphs) == 1


def test_a_backend_that_compiles_has_its_weights_guarded():
    module, graphs = Scaled(unseen), []

    def backend(gm, inputs):
        graphs.append([t.dtype for t in inputs])
        return lambda *args: gm.forward(*args)

    sot.to_static(module, backend=backend)
    for _ in range(2):
        module(X)
        module.double()
    assert graphs == [[torch.float32] * 3, [torch.float32, torch.float64, torch.float64]]


def test_a_backend_that_changes_the_graph_has_its_weights_guarded():
    """It may have done so for the dtypes that it was shown."""
    module = Scaled(unseen)

    def backend(gm, inputs):
        node, = gm.graph.find_nodes(op="call_function", target=torch.sigmoid)
        node.target = torch.tanh if inputs[1].dtype is torch.float32 else torch.sigmoid
        gm.recompile()
        return gm.forward

    sot.to_static(module, backend=backend)
    assert same(module(X), torch.tanh(X * module.w) + module.b) is None
    module.w.data = module.w.data.double()
    assert same(module(X), torch.sigmoid(X * module.w) + module.b) is None


# ---- any program, any changes ---------------------------------------------------------------------------------
STEPS = st.sampled_from([
    "y = y * w", "y = y + b", "y = w - y", "y = y.to(w.dtype)", "y = w.to(y.dtype)", "y = w.float()", "y = y.double()",
    "n += y.dim()", "n += w.shape[0]", "n += y.dtype is torch.float32", "n += y is w", "n += w.requires_grad",
    "n += (y + b).requires_grad", "y = y.detach()", "y = y.sum(0)", "y = y.unsqueeze(0)", "y = y.contiguous()",
    "y = F.dropout(y, 0.5, False)", "y = y.expand(2, 3)", "y = y.reshape(-1)", "y = y.chunk(2)[0]", "n += len(y)",
    "y = y.clone(); y += 1", "y.note = n", "n += getattr(w, 'note', 0)", "m.log.append(n)", "y = y @ w", "y = x * 2",
    "with torch.no_grad(): y = w.double(); y.mul_(2)", "y = y.T", "y = torch.relu(y)", "y = [y, w][n % 2]", "y = x - b",
    "try: y = y @ w\nexcept RuntimeError as e: m.log.append(str(e))", "n += isinstance(w, Marked)", "b = w",
    "y = torch.cat([y, w])", "y = F.linear(x, w.expand(2, -1), None)", "n += y.is_leaf", "y = y.data"])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=6), st.lists(st.sampled_from([*CHANGES]), min_size=1, max_size=3))
def test_any_program_with_any_changes(steps, changes):
    steps = textwrap.indent("\n".join(steps), "    ")
    source = f"def body(m, x, w, b):\n    y, n = x, 0\n{steps}\n    return y, n\n"
    namespace = {"torch": torch, "F": F, "Marked": Marked}
    exec(compile(source, "<program>", "exec"), namespace)
    plain, mine, _ = pair(namespace["body"])
    agree(plain, mine)
    agree(plain, mine)
    for name in changes:
        for m in (plain, mine):
            CHANGES[name](m)
        agree(plain, mine)
        agree(plain, mine)
