"""``torch.utils.checkpoint`` in a captured function: a node that recomputes, or a break; gradients are Python's."""
from __future__ import annotations

import copy
import functools
import warnings

import pytest
import torch
from harness import Counter, every_call, same
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import sot


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.calls = []

    def forward(self, x, scale=None):
        h = nn.functional.dropout(torch.relu(self.inner(self.norm(x))), 0.5, self.training)
        return x + h if scale is None else x + h * scale


class Blocks(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks, self.reentrant = nn.ModuleList(Block() for _ in range(3)), reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Structures(Block):
    def forward(self, x):
        def run(a, k):
            return self.inner(a), [a * k, 3]
        y, (z, c) = checkpoint(run, x, use_reentrant=False, k=5)
        return y + z * c


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.3)) for _ in range(4)))

    def forward(self, x):
        return checkpoint_sequential(self.layers, 2, x, use_reentrant=False)


class Mixed(Block):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = checkpoint(self.inner, x, use_reentrant=False)
        return y.float() + checkpoint(lambda a: a.sin(), x, use_reentrant=False)


class Inside(Block):
    def forward(self, x):
        loss = checkpoint(self.inner, x, use_reentrant=False).pow(2).sum()
        gradient, = torch.autograd.grad(loss, self.inner.weight)
        return gradient


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return checkpoint(self.norm, x, use_reentrant=False)


class Views(nn.Module):
    def forward(self, x):
        return checkpoint(lambda a: a.view(-1), x, use_reentrant=False) * 2


class Counts(Block):
    """What is done twice in plain Python is done twice."""

    def forward(self, x):
        def run(a):
            self.calls.append(1)
            return self.inner(a)
        return checkpoint(run, x, use_reentrant=False) * 2


def gradients(module, call, seed):
    torch.manual_seed(seed)
    x = torch.randn(2, 4, requires_grad=True)
    module.zero_grad()
    y = call(x)
    if y.requires_grad:
        y.sum().backward()
    return [y, x.grad, torch.rand(1), *(p.grad for p in module.parameters()), *module.buffers()]


def compare(module, backend):
    plain, mine = module, copy.deepcopy(module)
    translated = sot.to_static(mine, backend=backend)
    for seed in range(3):
        want, got = gradients(plain, plain, seed), gradients(mine, translated, seed)
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(want, got, strict=True)), seed
        assert getattr(plain, "calls", None) == getattr(mine, "calls", None)
    return sot.translation_of(translated)


WHOLE = {"blocks": lambda: Blocks(False), "reentrant": lambda: Blocks(True), "structures": Structures,
         "sequence": Sequence, "mixed": Mixed, "gradients inside": Inside, "in eval mode": lambda: Blocks(False).eval()}


@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_a_checkpoint_is_a_node_that_recomputes(make):
    backend = Counter()
    translation = compare(make(), backend)
    assert len(backend.graphs) == 1 and not any(c.stopped for c in translation.captures)


@pytest.mark.parametrize("make", [Statistics, Views, Counts])
def test_what_would_be_another_program_is_a_break(make):
    translation = compare(make(), Counter())
    assert any("checkpoint (" in str(c.stopped) for c in translation.captures)


def test_memory_is_saved():
    """The tensors in between are not kept for the backward pass: no more of them than in plain PyTorch."""
    def kept_by(model):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            model(torch.randn(2, 4, requires_grad=True)).sum()
        return len(kept)
    assert kept_by(sot.to_static(Blocks(False), backend=Counter())) <= kept_by(Blocks(False))


def policy(ctx, operator, *args, **kwargs):
    kept = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


class Selective(Blocks):
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, context_fn=CONTEXTS)
        return x


CONTEXTS = functools.partial(create_selective_checkpoint_contexts, policy)


class SelectiveByWhatTheCallMakes(Blocks):
    def forward(self, x):
        def policy(ctx, operator, *args, **kwargs):
            kept = operator == torch.ops.aten.addmm.default
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
        operators = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
        first, *others = self.blocks
        for block in others:
            x = checkpoint(block, x, use_reentrant=False, context_fn=functools.partial(
                create_selective_checkpoint_contexts, operators))
        return checkpoint(first, x, use_reentrant=False, context_fn=functools.partial(
            create_selective_checkpoint_contexts, policy_fn_or_list=policy))


COMPILED = {**WHOLE, "selective": lambda: Selective(False), "made": lambda: SelectiveByWhatTheCallMakes(False)}


@pytest.mark.slow
@pytest.mark.parametrize("make", COMPILED.values(), ids=COMPILED)
def test_graphs_that_are_compiled_recompute_what_the_checkpoint_would(make):
    translation = compare(make(), "aot_eager")
    assert not any(c.stopped for c in translation.captures)


@pytest.mark.parametrize("kind", [Selective, SelectiveByWhatTheCallMakes])
def test_selection_by_a_policy_is_part_of_the_node(kind):
    compare(kind(False), backend := Counter())
    assert len(backend.graphs) == 1


def operations_of(model, graphs):
    """The names of the operations in the forward and the backward graph of a model."""
    graphs.clear()
    translated = sot.to_static(model, full_graph=True, backend=aot_autograd(
        fw_compiler=lambda gm, _: graphs.append(gm) or gm.forward,
        bw_compiler=lambda gm, _: graphs.append(gm) or gm.forward))
    translated(torch.randn(2, 4, requires_grad=True)).sum().backward()
    return [[str(n.target) for n in gm.graph.nodes if n.op == "call_function"] for gm in graphs]


@pytest.mark.slow
def test_the_backward_graph_recomputes():
    class Plain(Blocks):
        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x
    graphs = []
    _, plain = operations_of(Plain(False).eval(), graphs)
    forward, backward = operations_of(Blocks(False).eval(), graphs)
    assert "aten.addmm.default" not in plain and "aten.addmm.default" in backward
    _, selected = operations_of(Selective(False).eval(), graphs)
    assert "aten.addmm.default" not in selected and "aten.relu.default" in selected


def test_other_random_numbers_in_the_backward_pass_are_left_to_pytorch():
    """With preserve_rng_state=False the function draws anew when it is computed again."""
    class Anew(Block):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False, preserve_rng_state=False)
    compare(Anew(), "aot_eager")


def training_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).pow(2).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


# The batch of a step needs no gradient. Then a reentrant checkpoint passes none on.
STEPS = {name: make for name, make in COMPILED.items() if name not in ("reentrant", "gradients inside")}


@pytest.mark.slow
@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_a_whole_step_with_checkpoints(make):
    results = []
    for translate in (False, True):
        torch.manual_seed(0)
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        step = sot.to_static(training_step, backend=every_call("aot_eager"),
                             full_graph=True) if translate else training_step
        torch.manual_seed(1)
        losses = [step(model, optimizer, torch.randn(2, 4)) for _ in range(3)]
        results.append([*losses, *model.parameters(), torch.rand(1)])
    torch.testing.assert_close(results[1], results[0])


class Deep(nn.Module):
    """Layers of which a checkpoint keeps the input alone, one of 16 tensors of the same size."""

    def __init__(self, kept):
        super().__init__()
        self.layers, self.kept = nn.ModuleList(nn.Linear(4, 4) for _ in range(4)), kept

    def forward(self, x):
        def layer(inner, a):
            for _ in range(5):
                a = nn.functional.dropout(inner(a).sin().exp(), 0.5, self.training)
            return a
        for inner in self.layers:
            if self.kept is None:
                x = layer(inner, x)
            else:
                x = checkpoint(layer, inner, x, use_reentrant=False, **self.kept)
        return x


def most_memory(model):
    """The most elements of float tensors that are alive at a time in the graph of a training step."""
    graphs = []
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    step = sot.to_static(training_step, full_graph=True, backend=aot_autograd(
        fw_compiler=lambda gm, _: graphs.append(gm) or gm.forward))
    step(model, sgd, torch.randn(64, 4))
    (graph,) = graphs
    nodes = [*graph.graph.nodes]
    at = {node: i for i, node in enumerate(nodes)}
    sizes = {storage: val.numel() for n in nodes if isinstance(val := n.meta.get("val"), torch.Tensor)
             for storage in [val.untyped_storage()._cdata] if val.is_floating_point() and n.op != "placeholder"}
    spans = {}
    for n in nodes:
        if isinstance(val := n.meta.get("val"), torch.Tensor) and (own := val.untyped_storage()._cdata) in sizes:
            first, last = spans.get(own, (at[n], at[n]))
            spans[own] = first, max(last, *(at[user] for user in n.users), at[n])
    return max(sum(sizes[own] for own, (first, last) in spans.items() if first <= i <= last) for i in range(len(nodes)))


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True], ids=["without draws", "with draws"])
@pytest.mark.parametrize(("options", "share"), [({}, 0.6), ({"context_fn": CONTEXTS}, 0.85)],
                         ids=["whole", "selective"])
def test_a_whole_step_computes_again_what_the_checkpoint_would(options, share, training):
    plain, saved = (most_memory(Deep(kept).train(training)) for kept in (None, options))
    assert saved < share * plain


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"context_fn": CONTEXTS}], ids=["whole", "selective"])
def test_the_second_run_in_a_step_has_the_random_numbers_and_autocast_of_the_first(options):
    class Mixed(Deep):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x).float()
    results = []
    for backend in (None, every_call("aot_eager")):
        torch.manual_seed(0)
        model = Mixed(options).train()
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        step = training_step if backend is None else sot.to_static(training_step, backend=backend, full_graph=True)
        results.append([*(step(model, sgd, torch.randn(2, 4)) for _ in range(3)), *model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.slow
def test_results_of_a_checkpoint_in_a_step_may_need_no_gradient():
    class Indices(Blocks):
        def forward(self, x):
            def run(a):
                return self.blocks[0](a), a.argmax(-1), a.detach() * 2
            y, which, constant = checkpoint(run, x, use_reentrant=False)
            y = checkpoint(lambda a: checkpoint(self.blocks[1], a, use_reentrant=False).cos(), y, use_reentrant=False)
            return y * which[:, None] + constant
    results = []
    for translate in (False, True):
        torch.manual_seed(0)
        model = Indices(False)
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        step = sot.to_static(training_step, backend=every_call("aot_eager"),
                             full_graph=True) if translate else training_step
        results.append([*(step(model, sgd, torch.randn(2, 4)) for _ in range(3)), *model.parameters()])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.slow
def test_gradients_of_gradients_through_a_checkpoint_in_a_step():
    def step(model, sgd, x):
        sgd.zero_grad()
        x = x.requires_grad_()
        slope, = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        sgd.step()
        return slope.detach()
    results = []
    for translate in (False, True):
        torch.manual_seed(0)
        model = Deep({})
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        run = sot.to_static(step, backend=every_call("aot_eager")) if translate else step
        results.append([*(run(model, sgd, torch.randn(2, 4)) for _ in range(3)), *model.parameters()])
    torch.testing.assert_close(results[1], results[0])


def test_a_reentrant_checkpoint_of_what_needs_no_gradient_is_its_function_without_gradients():
    layer = torch.nn.Linear(4, 4)

    def fn(x):
        return checkpoint(lambda a: (layer(a).relu(), a * 2), x, use_reentrant=True)

    def warned(f):
        with pytest.warns(UserWarning, match="Gradients will be None") as found:
            results = f(torch.ones(4))
        return [r.requires_grad for r in results], results, [(w.filename, w.lineno) for w in found]
    translated = sot.to_static(fn, backend=(backend := Counter()))
    for _ in range(2):
        assert same(warned(translated), warned(fn)) is None
    assert len(backend.graphs) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_of_inference_tensors_raises_after_what_came_before_it(backend, reentrant):
    def fn(x, w, seen):
        x.t_()
        with torch.inference_mode():
            seen.append(1)
            with torch.enable_grad():
                return checkpoint(lambda a: a * w, x + 1, use_reentrant=reentrant)

    def called(f, requires_grad):
        x, w, seen = torch.ones(2, 3) * 2, torch.ones(2, requires_grad=requires_grad), []
        try:
            result = f(x, w, seen)
        except RuntimeError as error:
            result = str(error)
        return result, x.stride(), seen
    translated = sot.to_static(fn, backend=backend)
    for requires_grad in (False, True, False, True):
        assert same(called(translated, requires_grad), called(fn, requires_grad)) is None


def outcomes(fn, backend):
    """What calls of a function with a model return, with warnings and gradients: plain, and translated."""
    found = []
    for translate in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Linear(4, 4))
        run, results = sot.to_static(fn, backend=backend) if translate else fn, []
        for n in (2, 2, 3):
            x = torch.randn(n, 4, requires_grad=True)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                made = run(model, x)
                if made.requires_grad:
                    made.sum().backward()
            results += [made, x.grad, *(p.grad.clone() for p in model.parameters()), len(told), torch.rand(1)]
        found.append(results)
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_step_with_a_reentrant_checkpoint(backend):
    """Only ``backward()`` goes through one: the gradients of a graph that runs as it is are ``torch.autograd.grad``."""
    def fn(model, x):
        loss = checkpoint(model, x.sin(), use_reentrant=True).square().sum()
        loss.backward()
        return loss.detach()
    plain, translated = outcomes(fn, backend)
    assert same(translated, plain) is None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_reentrant_checkpoint_in_another_one_warns(backend):
    def fn(model, x):
        def inner(v):
            return checkpoint(model, checkpoint(model, v, use_reentrant=True), use_reentrant=True)
        return checkpoint(inner, x, use_reentrant=True).sin()
    plain, translated = outcomes(fn, backend)
    assert same(translated, plain) is None and any(v for v in plain if type(v) is int)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_with_a_history_through_a_reentrant_checkpoint(backend):
    def run(translate):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        f = translate(lambda x: checkpoint(model, x, use_reentrant=True).sin())
        x = torch.randn(2, 4, requires_grad=True)
        f(x).sum().backward(create_graph=True)
        return [x.grad.detach(), *(p.grad.detach() for p in model.parameters())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(run(lambda f: sot.to_static(f, backend=backend)), run(lambda f: f))


def without_gradients(model, x):
    with torch.no_grad():
        return model(x) + torch.rand(4)


def of_frozen_weights(model, x):
    return model.requires_grad_(False)(x), torch.rand(4)


def of_a_part(model, x):
    frozen = checkpoint(nn.functional.dropout, x, use_reentrant=False)
    return frozen, model(x).detach()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("program", [without_gradients, of_frozen_weights, of_a_part])
def test_draws_in_a_checkpoint_that_nothing_goes_backward_through(program, reentrant):
    """AOTAutograd refuses them."""
    model = Blocks(reentrant)
    translated = sot.to_static(program, backend="aot_eager")
    for n in (2, 2, 3):
        found = []
        for call in translated, program:
            torch.manual_seed(n)
            found.append((call(copy.deepcopy(model), torch.ones(n, 4)), torch.rand(1)))
        assert same(*found) is None
