"""Rules that put one operator in the place of several: each applies, and results and gradients stay what they were.

``test_linear_layers.py`` has those of linear layers, with their biases and activations.
"""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, check_compiled, copied, numbers, outcome
from torch import Tensor, nn

import sot
from sot.graph.rewrite import rewriting
from sot.graph.rewrite.rewrites import ATEN, CAPTURED
from sot.torch_compat import compilers

RULES = {rule.name: rule for rule in (*CAPTURED, *ATEN)}


def heads() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(2, 3, n, 8, requires_grad=True) for n in (5, 7, 7))


def captured_graphs(fn, *args) -> list[torch.fx.GraphModule]:
    """The graph of each capture, as it is after the rules for captured graphs."""
    found = []

    def backend(gm, example_inputs):
        found.append(rewriting.captured(gm, lambda: compilers.fake_inputs(gm, example_inputs)))
        return found[-1].forward
    sot.to_static(fn, backend=backend)(*args)
    sot.reset()
    return found


def names(fn, *args) -> list[str]:
    return [str(getattr(n.target, "__name__", n.target)) for gm in captured_graphs(fn, *args) for n in gm.graph.nodes
            if n.op in ("call_function", "call_method")]


def check(fn, *args, gone: str = "", there: str = "", **tolerance) -> list[str]:
    """The rewritten program's results and gradients are those of the program; ``gone`` and ``there`` are operations."""
    mine = copied(args)
    wanted = [t for t in args if isinstance(t, Tensor) and t.requires_grad]
    expected = outcome(fn, args, wanted)
    left = names(fn, *args)
    got = outcome(sot.to_static(fn, backend=lambda gm, e: rewriting.captured(
        gm, lambda: compilers.fake_inputs(gm, e)).forward), mine, [t for t in mine if isinstance(t, Tensor)
                                                                     and t.requires_grad])
    sot.reset()
    torch.testing.assert_close(got, expected, equal_nan=True, **tolerance or {"rtol": 1e-4, "atol": 1e-5})
    assert not gone or gone not in left, left
    assert not there or there in left, left
    return left


# ---- attention ----------------------------------------------------------------------------------------------
ATTENTION = {
    "plain": lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1) @ v,
    "divided": lambda q, k, v: F.softmax(torch.matmul(q, k.transpose(2, 3)) / math.sqrt(8), dim=-1) @ v,
    "multiplied": lambda q, k, v: torch.softmax(0.3 * torch.matmul(q, k.transpose(-1, -2)), 3).matmul(v),
    "dropout in eval": lambda q, k, v: F.dropout((q @ k.mT.contiguous()).softmax(-1), 0.5, False) @ v,
    "dropout of nothing": lambda q, k, v: F.dropout((q @ k.permute(0, 1, 3, 2)).softmax(-1), 0.0) @ v,
    "causal": lambda q, k, v: (q @ k[:, :, :5].transpose(-2, -1)).masked_fill(
        torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf).softmax(-1) @ v[:, :, :5],
    "kept": lambda q, k, v: torch.where(torch.ones(5, 7, dtype=torch.bool).tril(1), q @ k.transpose(-2, -1),
                                        -math.inf).softmax(-1) @ v,
    "lowest": lambda q, k, v: (q @ k.transpose(-2, -1)).masked_fill(
        torch.arange(7) > 4, torch.finfo(torch.float32).min).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    left = check(ATTENTION[name], *heads(), gone="softmax", there="scaled_dot_product_attention")
    assert "matmul" not in left
    assert ("masked_fill" in left) == (name == "lowest"), "a mask that is known to be causal is not read"


MASKED = {
    "masked": (lambda q, k, v, m: (q @ k.transpose(-2, -1) * 0.5).masked_fill(m, -math.inf).softmax(-1) @ v),
    "kept": (lambda q, k, v, m: torch.where(m, q @ k.transpose(-2, -1), -math.inf).softmax(-1) @ v),
    "a bias": (lambda q, k, v, m: (q @ k.transpose(-2, -1) + torch.where(m, 0.0, -math.inf)).softmax(-1) @ v),
}


@pytest.mark.parametrize("blind", [False, True], ids=["all see something", "some see nothing"])
@pytest.mark.parametrize("name", MASKED)
def test_attention_with_a_mask_that_is_an_argument(name, blind):
    """What sees nothing is NaN, as 0 / 0 is, and so are the gradients."""
    mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(3)) > 0.4
    mask[..., 0] = name != "masked"
    if blind:
        mask[1, :, 2] = name == "masked"
    check(MASKED[name], *heads(), mask, there="scaled_dot_product_attention", gone="softmax")


REFUSED = {
    "weights that are given out": lambda q, k, v: ((w := (q @ k.mT).softmax(-1)) @ v, w),
    "another axis": lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-2) @ v,
    "a change of the keys in between": lambda q, k, v: _changing(q, k.clone(), v) * q,
    "dropout that draws": lambda q, k, v: F.dropout((q @ k.transpose(-2, -1)).softmax(-1), 0.5) @ v,
    "another type": lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1, dtype=torch.float64).float() @ v,
    "a scale of the program's": lambda q, k, v: (q @ k.transpose(-2, -1) * q.sum()).softmax(-1) @ v,
    "a number that is not the lowest": lambda q, k, v: (q @ k.transpose(-2, -1)).masked_fill(
        torch.ones(5, 7, dtype=torch.bool).triu(1), -1e4).softmax(-1) @ v,
}


def _changing(q, k, v):
    q, v = q.detach(), v.detach()
    k = k.detach()
    scores = q @ k.transpose(-2, -1)
    k.mul_(2)
    return scores.softmax(-1) @ (v + k.sum())


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_quite_attention_stays(name):
    left = check(REFUSED[name], *heads())
    assert "scaled_dot_product_attention" not in left


def test_a_mask_that_is_learned_stays():
    bias = torch.randn(5, 7, requires_grad=True)
    left = check(lambda q, k, v, b: (q @ k.transpose(-2, -1) + b).softmax(-1) @ v, *heads(), bias)
    assert "softmax" in left


# ---- groups of queries ---------------------------------------------------------------------------------------------
def repeated(x: Tensor, times: int) -> Tensor:
    batch, heads, n, width = x.shape
    return x[:, :, None, :, :].expand(batch, heads, times, n, width).reshape(batch, heads * times, n, width)


GROUPED = {
    "repeated": lambda q, k, v: F.scaled_dot_product_attention(
        q, k.repeat_interleave(3, 1), v.repeat_interleave(3, dim=1), is_causal=True),
    "expanded": lambda q, k, v: F.scaled_dot_product_attention(q, repeated(k, 3), repeated(v, 3), scale=0.4),
    "unsqueezed": lambda q, k, v: F.scaled_dot_product_attention(
        q, k.unsqueeze(2).expand(-1, -1, 3, -1, -1).reshape(2, 6, 7, 8),
        torch.reshape(v[:, :, None].expand(2, 2, 3, 7, 8), (2, -1, 7, 8))),
    "written out": lambda q, k, v: (q @ repeated(k, 3).transpose(2, 3) / math.sqrt(8)).softmax(
        -1, dtype=torch.float32).to(q.dtype) @ repeated(v, 3),
}
GROUPS_REFUSED = {
    "the other order": lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1)),
    "another axis": lambda q, k, v: F.scaled_dot_product_attention(
        q, k.unsqueeze(1).expand(2, 3, 2, 7, 8).reshape(2, 6, 7, 8),
        v.unsqueeze(1).expand(2, 3, 2, 7, 8).reshape(2, 6, 7, 8)),
    "a mask": lambda q, k, v: F.scaled_dot_product_attention(
        q, repeated(k, 3), repeated(v, 3), attn_mask=torch.ones(5, 7, dtype=torch.bool).tril(2)),
    "f32": lambda q, k, v: F.scaled_dot_product_attention(q.float(), repeated(k.float(), 3), repeated(v.float(), 3)),
}


def grouped_heads(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, h, n, 8).to(dtype).requires_grad_() for h, n in ((6, 5), (2, 7), (2, 7))]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", GROUPED)
def test_keys_and_values_that_queries_share_are_not_repeated(name, dtype):
    left = check(GROUPED[name], *grouped_heads(dtype), there="scaled_dot_product_attention", rtol=2e-2, atol=2e-2)
    assert not {"repeat_interleave", "expand", "softmax"} & set(left)


@pytest.mark.parametrize("name", GROUPS_REFUSED)
def test_what_fused_kernels_do_not_group_stays(name):
    left = check(GROUPS_REFUSED[name], *grouped_heads(torch.bfloat16), rtol=2e-2, atol=2e-2)
    assert {"repeat", "expand"} & set(left)


# ---- normalization ----------------------------------------------------------------------------------------------
def _norm(x, square, root):
    centred = x - x.mean(-1, keepdim=True)
    return root(centred, square(centred).mean(-1, keepdim=True) + 1e-5)


NORMS = {
    "layer norm": [
        lambda x, w, b: _norm(x, lambda c: c.pow(2), lambda c, v: c / torch.sqrt(v)) * w + b,
        lambda x, w, b: b + w * _norm(x, torch.square, lambda c, v: c * v.rsqrt()),
        lambda x, w, b: _norm(x, lambda c: c * c, lambda c, v: c / v.sqrt()) * w,
        lambda x, w, b: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * w + b,
        lambda x, w, b: (x - x.mean(dim=2, keepdim=True)) * torch.rsqrt(
            torch.var(x, dim=-1, correction=0, keepdim=True) + 1e-5),
    ],
    "RMS norm": [
        lambda x, w, b: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        lambda x, w, b: w * (x * torch.rsqrt((x * x).mean((-1,), keepdim=True) + 1e-6)),
        lambda x, w, b: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt(),
    ],
}


@pytest.mark.parametrize(("name", "number"), [(n, i) for n, forms in NORMS.items() for i in range(len(forms))])
def test_a_norm_that_is_written_out(name, number):
    operation = {"layer norm": "layer_norm", "RMS norm": "rms_norm"}[name]
    left = check(NORMS[name][number], numbers(3, 4, 16), numbers(16), numbers(16), gone="mean", there=operation)
    assert not {"sqrt", "rsqrt"} & set(left)


def scaled(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


HALF_NORMS = [
    lambda x, w: w * scaled(x.to(torch.float32)).to(x.dtype),
    lambda x, w: (lambda y: y / torch.sqrt((y * y).mean(-1, keepdim=True) + 1e-6))(x.float()).type_as(x) * w,
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fn", HALF_NORMS)
def test_a_norm_of_half_precision_that_is_computed_in_single(fn, dtype):
    x, w = (numbers(*shape).detach().to(dtype).requires_grad_() for shape in ((3, 4, 16), (16,)))
    left = check(fn, x, w, gone="rsqrt", there="rms_norm", rtol=2e-2, atol=2e-2)
    assert not {"mean", "float", "to"} & set(left)


def test_a_norm_whose_result_stays_in_single_precision_keeps_it():
    left = check(lambda x: scaled(x.float()).double(), numbers(3, 16).detach().bfloat16())
    assert left == ["float", "rms_norm", "double"]


@pytest.mark.parametrize("fn", [
    lambda x, w, b: (x - x.mean(-2, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5),
    lambda x, w, b: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5),
    lambda x, w, b: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False).sqrt() + 1e-5),
    lambda x, w, b: x * torch.rsqrt(b.pow(2).mean(-1, keepdim=True) + 1e-6),
], ids=["another axis", "the other variance", "another place for epsilon", "another tensor's"])
def test_what_is_not_quite_a_norm_stays(fn):
    assert not {"layer_norm", "rms_norm"} & set(check(fn, numbers(3, 4, 16), numbers(16), numbers(16)))


# ---- convolution and batch norm ------------------------------------------------------------------------------------
def convolutional(n: int, bias: bool, affine: bool) -> nn.Module:
    torch.manual_seed(0)
    conv, norm = getattr(nn, f"Conv{n}d"), getattr(nn, f"BatchNorm{n}d")
    model = nn.Sequential(conv(3, 4, 3, bias=bias, padding=1, stride=2), norm(4, affine=affine), conv(4, 2, 1))
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize(("n", "bias", "affine"), [
    (1, True, True), (2, False, True), (2, True, False), (3, True, True)])
def test_batch_norm_in_eval_is_folded_into_the_convolution(n, bias, affine):
    model, x = convolutional(n, bias, affine), torch.randn(2, 3, *[9] * n)
    with torch.no_grad():
        left = check(lambda x: model(x), x, gone="batch_norm", there=f"conv{n}d")
    assert left.count(f"conv{n}d") == 2


def test_parameters_that_change_afterwards_count():
    model, x = convolutional(2, True, True), torch.randn(2, 3, 9, 9)
    made = Kernels()
    run = sot.to_static(lambda x: model(x), backend=made)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x))
            model[0].weight.data.mul_(2)
            model[1].running_var.add_(1)
            model[1].weight.add_(0.5)
    assert len(made.made) == 1
    sot.reset()


def test_batch_norm_stays_where_gradients_flow_or_statistics_change_or_a_kernel_reads_it_anyway():
    model, x = convolutional(2, True, True), torch.randn(2, 3, 9, 9)
    assert "batch_norm" in names(lambda x: model(x), x)
    with torch.no_grad():
        assert "batch_norm" in names(lambda x: model[1](model[0](x)).relu(), x)
        model.train()
        assert "batch_norm" in names(lambda x: model(x), x)


# ---- sums of products -----------------------------------------------------------------------------------------------
SUMS = {
    "two": lambda x, y, w: x @ w + y @ w,
    "three": lambda x, y, w: x @ w + y @ w + y @ w.t(),
    "the sum first": lambda x, y, w: y @ w.t() + (x @ w + y @ w),
    "of linear layers": lambda x, y, w: F.linear(x.view(2, 3, 4), w) + F.linear(y.view(2, 3, 4), w),
    "transposed": lambda x, y, w: (x @ w).t() + (y @ w).t(),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_product_is_added_where_the_first_one_is_in_memory(name):
    args = numbers(6, 4, grad=False), numbers(6, 4, grad=False) + 1, numbers(4, 4, grad=False)
    made, = check_compiled(SUMS[name], *args)
    assert made.source.count("addmm_out(") == 1 + (name in ("three", "the sum first"))
    assert made.cost.kernels == 0


def test_gradients_of_a_weight_that_is_read_in_each_step_are_added_in_place():
    def f(x, w):
        for _ in range(4):
            x = torch.tanh(x @ w)
        return x
    forward, backward = check_compiled(f, numbers(6, 4), numbers(4, 4))
    assert backward.source.count("addmm_out(") == 3 and "addmm_out" not in forward.source


UNLIKE = {
    "half precision": lambda x, y, w: x.half() @ w.half() + y.half() @ w.half(),
    "read elsewhere": lambda x, y, w: ((p := x @ w) + y @ w, p * 2),
    "another shape": lambda x, y, w: x[:1] @ w + y @ w,
    "with a factor": lambda x, y, w: torch.add(x @ w, y @ w, alpha=2),
    "one of them is transposed": lambda x, y, w: (x[:4] @ w).t() + y[:4] @ w,
}


@pytest.mark.parametrize("name", UNLIKE)
def test_other_sums_of_products_stay(name):
    args = numbers(6, 4, grad=False), numbers(6, 4, grad=False) + 1, numbers(4, 4, grad=False)
    made, = check_compiled(UNLIKE[name], *args, rtol=1e-3, atol=1e-3)
    assert "addmm" not in made.source


# ---- sums of lookups ------------------------------------------------------------------------------------------------
LOOKUPS = {
    "two": lambda a, b, w: F.embedding(a, w).sum(0) * F.embedding(b, w).exp(),
    "in each step": lambda a, b, w: sum(F.embedding(i, w).sin().sum() * n for n, i in enumerate([a, b, a[:2], b[1]])),
    "in the first and last layer": lambda a, b, w: F.embedding(a, w).tanh() @ w.t(),
    "by an index": lambda a, b, w: w[a].mean(0) + w[b] * 2,
    "padding": lambda a, b, w: F.embedding(a, w, padding_idx=1).exp().sum() + F.embedding(b, w, padding_idx=3),
}


def lookups() -> tuple[Tensor, ...]:
    return torch.arange(9) % 4, torch.arange(5) * 7 % 3, numbers(30, 4)


@pytest.mark.parametrize("name", LOOKUPS)
def test_the_gradient_of_a_lookup_is_added_where_the_first_one_is_in_memory(name):
    _, backward = check_compiled(LOOKUPS[name], *lookups())
    filled = [step.written() - step.read() for step in backward.program.steps]
    assert sum(backward.program.buffers[n].shape == (30, 4) for names in filled for n in names) == 1


OTHER_LOOKUPS = {
    "half precision": lambda a, b, w: (h := w.half())[a].sum(0) + h[b],
    "added to something else": lambda a, b, w: F.embedding(a, w) * w.sin().sum(),
    "of two tables": lambda a, b, w: F.embedding(a, w.exp()).sum(0) + F.embedding(b, w.sin()),
    "to others": lambda a, b, w: w.new_full((30, 4), 0).index_put((a,), w[:9], True) + w.index_put((b,), w[4], True),
}


@pytest.mark.parametrize("name", OTHER_LOOKUPS)
def test_other_sums_with_lookups_stay(name):
    for made in check_compiled(OTHER_LOOKUPS[name], *lookups(), rtol=1e-3, atol=1e-3):
        puts = made.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.index_put.default)
        assert all(put.args[0] not in puts for put in puts)


# ---- symbolic sizes ---------------------------------------------------------------------------------------------
def test_rules_apply_to_graphs_with_symbolic_sizes():
    """And ask for nothing that the program did not: one graph for all sizes."""
    def f(q, k, v, w):
        mixed = (q @ k.transpose(-2, -1) / 3).softmax(-1) @ v
        return mixed * torch.rsqrt(mixed.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(rewriting.captured(gm, lambda: compilers.unchanged_inputs(gm, example_inputs)))
        return graphs[-1].forward
    run = sot.to_static(f, backend=backend)
    for batch, n in ((2, 5), (3, 7), (4, 6), (5, 5)):
        args = *(numbers(batch, 3, n, 8) for _ in range(3)), numbers(8)
        torch.testing.assert_close(run(*args), f(*args), rtol=1e-4, atol=1e-5)
    assert len(graphs) == 2, "the first sizes, and all others"
    for gm in graphs:
        left = {getattr(n.target, "__name__", "") for n in gm.graph.nodes}
        assert {"scaled_dot_product_attention", "rms_norm"} <= left
    sot.reset()


def test_what_rules_must_know_of_sizes_they_do_not_assume():
    def f(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    captures, made = [], Kernels()

    def backend(gm, example_inputs):
        captures.append(gm)
        return made(gm, example_inputs)
    run = sot.to_static(f, backend=backend)
    for n in (5, 7, 9, 12):
        torch.testing.assert_close(run(numbers(3, n), numbers(n)), f(numbers(3, n), numbers(n)))
    assert len(captures) == 2
    sot.reset()


# ---- switches, and the table -------------------------------------------------------------------------------------
def test_rules_are_switched_off_by_name(monkeypatch):
    monkeypatch.setenv("SOT_PATTERNS", "-attention")
    assert "softmax" in names(ATTENTION["plain"], *heads())
    monkeypatch.setenv("SOT_PATTERNS", "attention")
    with pytest.raises(ValueError, match="SOT_PATTERNS: 'attention' must begin with"):
        rewriting.in_force(CAPTURED)
    with pytest.raises(ValueError, match="there is no rule 'attentoin'; the rules are attention, layer norm"):
        rewriting.in_force(CAPTURED, "-attentoin")


def test_a_rule_that_is_switched_off_is_off_for_what_the_cache_holds(monkeypatch):
    f, args = lambda x, w, b: F.relu(F.linear(x, w, b)), (numbers(5, 8), numbers(4, 8), numbers(4))
    assert "_addmm_activation" in check_compiled(f, *args)[0].source
    monkeypatch.setenv("SOT_PATTERNS", "-linear and relu")
    assert "_addmm_activation" not in check_compiled(f, *args)[0].source
    assert not any("," in name for name in RULES), "a comma stands between switches"


def test_every_rule_is_proved_here():
    proved = {"attention", "grouped queries", *NORMS, "RMS norm of half precision", "linear and relu",
              "bias of elementwise operations", "sum of products", "sum of lookups",
              *(f"linear and gelu by {by}" for by in ("erf", "tanh")),
              *(f"convolution {n}d and batch norm" for n in (1, 2, 3))}
    assert proved == set(RULES)


def test_rewritten_graphs_are_printed_on_request(caplog):
    with caplog.at_level("DEBUG", logger="sot.passes"):
        names(ATTENTION["plain"], *heads())
    assert "attention, 1 times" in caplog.text and "scaled_dot_product_attention" in caplog.text
