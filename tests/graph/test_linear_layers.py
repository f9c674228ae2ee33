"""Linear layers in lowered graphs: the library's call ends with the activation, or what reads it adds the bias."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiling import check_compiled, copied, numbers
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.rewrite import decompositions, rewrites, rewriting


# ---- linear and activation ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(6, 8), (2, 3, 8)], ids=str)
def test_a_linear_layer_ends_with_its_relu(shape):
    weight, bias = numbers(4, 8), numbers(4)
    made = check_compiled(lambda x, w, b: F.relu(F.linear(x, w, b)) * 2, numbers(*shape), weight, bias)
    assert "_addmm_activation" in made[0].source and "maximum" not in made[0].source


def test_a_linear_layer_whose_result_is_given_out_stays():
    args = numbers(6, 8), numbers(4, 8), numbers(4)
    made = check_compiled(lambda x, w, b: ((y := F.linear(x, w, b)), F.relu(y)), *args)
    assert "_addmm_activation" not in made[0].source


GELU = {"erf": lambda x: F.gelu(x), "tanh": lambda x: F.gelu(x, approximate="tanh")}


@pytest.mark.parametrize("by", GELU)
@pytest.mark.parametrize("shape", [(6, 8), (2, 3, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_ends_with_its_gelu(dtype, shape, by, monkeypatch):
    """With the one that the library has, which on a GPU is by tanh; here its call is what torch says it is there."""
    def gpus(start, left, right, use_gelu):
        return GELU[by](torch.addmm(start, left, right).to(dtype))
    monkeypatch.setattr(rewrites, "OF_LIBRARY", {"cpu": by, "cuda": "neither"})
    x, w, b = (numbers(*s, grad=False).to(dtype) for s in (shape, (4, 8), (4,)))
    f = lambda x, w, b: GELU[by](F.linear(x, w, b)) * 2
    graph = make_fx(f, decompositions.table(), tracing_mode="fake", _allow_non_fake_inputs=True)(x, w, b)
    assert rewriting.aten(graph.graph) == 1
    graph.graph.lint()
    left = list(graph.graph.nodes)
    call, = (n for n in left if n.target is torch.ops.aten._addmm_activation.default)
    assert not {"erf", "tanh", "addmm"} & {str(n.target).split(".")[1] for n in left if n.op == "call_function"}
    call.target = gpus
    torch.testing.assert_close(torch.fx.Interpreter(graph).run(x, w, b), f(x, w, b))


def test_of_gelus_only_the_librarys_own_is_an_epilogue_and_only_without_gradients():
    args = numbers(6, 8, grad=False), numbers(4, 8, grad=False), numbers(4, grad=False)
    for by, there in (("erf", True), ("tanh", False)):
        made = check_compiled(lambda x, w, b: GELU[by](F.linear(x, w, b)), *args)
        assert ("_addmm_activation" in made[0].source) == there
    made = check_compiled(lambda x, w, b: GELU["erf"](F.linear(x, w, b)), *copied(args)[:2], numbers(4))
    assert "_addmm_activation" not in made[0].source


# ---- biases that the readers of a product add -----------------------------------------------------------------------
READERS = {
    "gelu": (lambda y: F.gelu(y) * 2, True),
    "relu": (lambda y: F.relu(y), True),
    "a view and a sum": (lambda y: y.view(3, 2, 4).transpose(0, 1) + 1, True),
    "several": (lambda y: (y.sin(), y * 2), True),
    "the program": (lambda y: y, False),
    "the program, too": (lambda y: (y.sin(), y), False),
    "a view of the program": (lambda y: (y.sin(), y.view(3, 2, 4)), False),
    "a product": (lambda y: y.sin() @ y.t(), False),
    "a reduction": (lambda y: y.sum(1), False),
}


@pytest.mark.parametrize("name", READERS)
def test_elementwise_readers_add_the_bias_where_products_are_slower_with_one(name, monkeypatch):
    monkeypatch.setattr(rewrites, "SLOWER_WITH_BIAS", ("cpu",))
    read, applies = READERS[name]
    args = numbers(6, 8, grad=False), numbers(4, 8, grad=False), numbers(4, grad=False)
    f = lambda x, w, b: read(F.linear(x, w, b))
    made = check_compiled(f, *args)
    assert ("addmm" in made[0].source) != applies


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_products_of_other_types_keep_their_bias(dtype, monkeypatch):
    monkeypatch.setattr(rewrites, "SLOWER_WITH_BIAS", ("cpu",))
    args = [numbers(*shape, grad=False).to(dtype) for shape in ((6, 8), (4, 8), (4,))]
    made = check_compiled(lambda x, w, b: F.linear(x, w, b).sin(), *args)
    assert "addmm" in made[0].source
