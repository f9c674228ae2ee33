"""Layers and modules: containers, hooks, buffers, parametrizations, training steps, as in plain Python."""
from __future__ import annotations

import collections
import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from harness import Counter, check, same
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import sot

torch.manual_seed(0)
X = torch.randn(3, 4)
S = torch.randn(2, 3, 4)
IMAGE = torch.randn(2, 2, 4, 4)
LABELS = torch.tensor([0, 1, 3])


# ---- layers of torch.nn

WHOLE = [
    *((lambda k=k: k(4, 5, 2, batch_first=True, dropout=0.2, bidirectional=True), S)
      for k in (nn.RNN, nn.LSTM, nn.GRU)),
    *((lambda k=k: k(4, 5), X) for k in (nn.RNNCell, nn.LSTMCell, nn.GRUCell)),
    (lambda: nn.LSTM(4, 5, proj_size=3), S),
    (lambda: nn.MultiheadAttention(4, 2, batch_first=True), S, S, S),
    (lambda: nn.MultiheadAttention(4, 2).eval(), S, S, S),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), S),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), S),
    (lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True), S, S),
    (lambda: nn.BatchNorm1d(4), X), (lambda: nn.BatchNorm1d(4).eval(), X), (lambda: nn.BatchNorm2d(2), IMAGE),
    (lambda: nn.InstanceNorm1d(3, track_running_stats=True), S), (lambda: nn.GroupNorm(1, 3), S),
    (lambda: nn.LayerNorm(4), X), (lambda: nn.RMSNorm(4), X),
    (lambda: nn.Embedding(5, 3, padding_idx=0, max_norm=1.0), LABELS),
    (lambda: nn.EmbeddingBag(5, 3), torch.tensor([0, 1, 4, 2]), torch.tensor([0, 2])),
    *((lambda k=k: k(), X, torch.rand(3, 4)) for k in (
        nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.PoissonNLLLoss,
        nn.SoftMarginLoss)),
    (lambda: nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=1), X, LABELS),
    (lambda: nn.NLLLoss(), F.log_softmax(X, -1), LABELS),
    (lambda: nn.KLDivLoss(reduction="batchmean"), X, X.softmax(-1)),
    (lambda: nn.TripletMarginLoss(), X, X + 1, X - 1), (lambda: nn.CosineEmbeddingLoss(), X, X + 1, torch.ones(3)),
    (lambda: nn.Dropout(0.5), X), (lambda: nn.Dropout2d(0.5), IMAGE), (lambda: nn.Upsample(scale_factor=2), S),
    (lambda: nn.Conv2d(2, 3, 3, padding="same"), IMAGE), (lambda: nn.ConvTranspose2d(2, 3, 3), IMAGE),
    (lambda: nn.Conv1d(3, 2, 2, padding=1, padding_mode="circular"), S),
    (lambda: nn.MaxPool2d(2, return_indices=True), IMAGE), (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    (lambda: nn.Softmax(-1), X), (lambda: nn.PReLU(), X), (lambda: nn.RReLU(), X), (lambda: nn.Bilinear(4, 4, 2), X, X),
    (lambda: nn.Flatten(), S), (lambda: nn.Unfold(2), IMAGE), (lambda: nn.Fold((4, 4), 2), torch.randn(1, 8, 9)),
    (lambda: nn.Sequential(collections.OrderedDict(a=nn.Linear(4, 4), b=nn.ReLU())), X),
    (lambda: parametrizations.weight_norm(nn.Linear(4, 2)), X),
    (lambda: parametrizations.spectral_norm(nn.Linear(4, 2)), X),
    (lambda: parametrizations.orthogonal(nn.Linear(4, 2)), X),
]


def names(rows):
    return [f"{type(row[0]()).__name__}-{i}" for i, row in enumerate(rows)]


@pytest.mark.parametrize("row", WHOLE, ids=names(WHOLE))
def test_a_layer_is_one_graph(row):
    make, *args = row
    torch.manual_seed(0)
    check(make(), *args, graphs=1, breaks=0)


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "householder"])
def test_cached_parametrizations_of_several_layers_are_one_graph(orthogonal_map):
    """Matrix exponentials and products of reflections raise for no value, so they may follow a change of buffers."""
    torch.manual_seed(0)
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 4)),
                          parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map=orthogonal_map))

    def twice(model, x):
        with parametrize.cached():
            return model(x) + model(x + 1)
    check(twice, model, X, graphs=1, breaks=0)


RIGHT = [
    (lambda: nn.Identity(), X), (lambda: nn.GaussianNLLLoss(), X, X + 1, torch.rand(3, 4)),
    (lambda: nn.CTCLoss(), torch.randn(5, 2, 4).log_softmax(2), torch.tensor([[1, 2], [1, 3]]), torch.tensor([5, 5]),
     torch.tensor([2, 2])),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2]), X, torch.tensor([0, 3, 5])),
    (lambda: nn.LazyLinear(3), X), (lambda: nn.utils.spectral_norm(nn.Linear(4, 2)), X),
]


@pytest.mark.parametrize("row", RIGHT, ids=names(RIGHT))
def test_a_layer_is_right(row):
    make, *args = row
    torch.manual_seed(0)
    check(make(), *args)


def test_an_old_style_weight_norm_is_right():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        plain = nn.utils.weight_norm(nn.Linear(4, 2))
        torch.manual_seed(0)
        translated = sot.to_static(nn.utils.weight_norm(nn.Linear(4, 2)))
    for _ in range(2):
        assert same(translated(X), plain(X)) is None


def test_a_momentum_of_none_averages_all_batches():
    plain = nn.BatchNorm1d(4, momentum=None)
    translated = sot.to_static(copy.deepcopy(plain))
    for i in range(4):
        assert same(translated(X + i), plain(X + i)) is None
    assert same(translated.state_dict(), plain.state_dict()) is None


# ---- modules that do more than compute
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})
        self.some = nn.ParameterList([nn.Parameter(torch.ones(4)), torch.zeros(4)])
        self.others = nn.ParameterDict({"x": nn.Parameter(torch.ones(4))})
        self.tied = self.layers[0]

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for layer in self.layers[1:]:
            x = layer(x)
        for module in self.named.values():
            x = module(x)
        for p in self.some:
            x = x * p + 1
        x = self.named["a"](x) + self.some[0] + self.others["x"]
        return (self.tied(x), len(self.layers), "a" in self.named, list(self.named),
                [n for n, _ in self.named_parameters()], [n for n, _ in self.named_modules()],
                sum(p.numel() for p in self.parameters()), len(list(self.children())))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


class MovingAverages(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4), persistent=False)
        self.last = None
        self.seen = []

    def forward(self, x):
        self.n += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.n = self.n * 2
        self.mean = self.mean + 1
        self.last = x * 2
        self.seen.append(x.sum())
        return x * self.n


class Switching(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(4)

    def forward(self, x):
        a = self.drop(self.norm(x))
        self.eval()
        b = self.drop(self.norm(x))
        self.train()
        if self.training:
            b = b + 1
        return a, b, self.drop.training


class StateDict(Base):
    def forward(self, x):
        state = self.state_dict()
        return x @ state["lin.weight"].T, list(state), self.lin.weight.requires_grad


class Loading(Base):
    def forward(self, x):
        self.lin.load_state_dict({"weight": torch.ones(4, 4), "bias": torch.zeros(4)})
        return self.lin(x)


def hooked(add):
    def make():
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        add(module)
        return module
    make.__name__ = add.__name__
    return make


def changes_arguments(module):
    module[0].register_forward_pre_hook(lambda m, args: (args[0] * 3,))


def changes_results(module):
    module[1].register_forward_hook(lambda m, args, out: out * 2)


def with_keywords(module):
    module[1].register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True)
    module.register_forward_hook(lambda m, args, out: {"out": out}, always_call=True)


@pytest.mark.parametrize("make", [Containers, Tied, MovingAverages, Switching, StateDict, Loading,
                                  *map(hooked, (changes_arguments, changes_results, with_keywords))],
                         ids=lambda m: m.__name__)
def test_a_module_is_one_graph(make):
    torch.manual_seed(0)
    check(make(), X, graphs=1, breaks=0)


class MakesParameters(nn.Module):
    def forward(self, x):
        p = nn.Parameter(torch.ones(4))
        lin = nn.Linear(4, 2)
        return x * p, isinstance(p, nn.Parameter), lin(x), nn.Dropout(0.5)(x), nn.CrossEntropyLoss()(x, LABELS)


class SetsModules(nn.Module):
    def forward(self, x):
        self.lin = nn.Linear(4, 2)
        return self.lin(x)


class Converts(Base):
    def forward(self, x):
        y = self.lin(x)
        self.double()
        z = self.lin(x.double())
        self.to(torch.float32)
        return y, z, self.lin(x)


class Copies(Base):
    def forward(self, x):
        return copy.deepcopy(self.lin)(x) + self.lin(x)


class Freezes(Base):
    def forward(self, x):
        self.lin.requires_grad_(False)
        y = self.lin(x)
        self.lin.requires_grad_(True)
        return y, self.lin(x)


class Trains(Base):
    def forward(self, x):
        self.zero_grad()
        self.lin(x).sum().backward()
        grad = self.lin.weight.grad.clone()
        self.zero_grad()
        return grad


class Saves(Base):
    def __init__(self):
        super().__init__()
        self.saved = {}
        self.lin.register_forward_hook(self.save)

    def save(self, module, args, out):
        self.saved["lin"] = out.detach()

    def forward(self, x):
        return self.lin(x), self.saved["lin"]


class Functional(Base):
    def forward(self, x):
        return torch.func.functional_call(self.lin, {"weight": torch.ones(4, 4), "bias": torch.zeros(4)}, (x,))


class Packs(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(S, [3, 2], batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0] + x.sum()


def changes_gradients(module):
    module[0].register_full_backward_hook(lambda m, gi, go: tuple(g * 2 if g is not None else None for g in gi))


@pytest.mark.parametrize("make", [MakesParameters, SetsModules, Copies, Freezes, Trains, Saves, Functional,
                                  Packs, hooked(changes_gradients)], ids=lambda m: m.__name__)
@pytest.mark.parametrize("x", [X, X.clone().requires_grad_()], ids=["plain", "grad"])
def test_a_module_is_right(make, x):
    torch.manual_seed(0)
    check(make(), x)


class Counts(Base):
    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return self.lin(x) * self.count


class Registers(nn.Module):
    def forward(self, x):
        if not hasattr(self, "w"):
            self.w = nn.Parameter(torch.ones(4))
        self.register_buffer("total", x.sum(0))
        return x * self.w + self.total, [n for n, _ in self.named_buffers()]


class HooksInside(Base):
    def forward(self, x):
        handle = self.lin.register_forward_hook(lambda m, args, out: out * 2)
        y = self.lin(x)
        handle.remove()
        return y, self.lin(x)


@pytest.mark.parametrize("make", [Counts, Registers, HooksInside, Converts], ids=lambda m: m.__name__)
def test_a_module_that_changes_itself_is_right_at_every_call(make):
    torch.manual_seed(0)
    plain = make()
    translated = sot.to_static(copy.deepcopy(plain), backend=Counter())
    for i in range(4):
        assert same(translated(X + i), plain(X + i)) is None
    assert same(translated.state_dict(), plain.state_dict()) is None
    captures = sot.translation_of(translated).captures
    assert not any(c.stopped and c.stopped.reason.name == "INTERNAL" for c in captures)


def test_hooks_registered_and_removed_between_calls():
    module = nn.Linear(4, 2)
    translated = sot.to_static(module)
    before = translated(X)
    handle = module.register_forward_hook(lambda m, args, out: out * 2)
    assert torch.equal(translated(X), before * 2)
    handle.remove()
    assert torch.equal(translated(X), before)


def test_lazy_layers_below_a_captured_module():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.norm = nn.LazyLinear(3), nn.LazyBatchNorm1d()

        def forward(self, x):
            return self.norm(self.lin(x))
    plain, translated = Lazy(), sot.to_static(Lazy())
    for _ in range(2):
        torch.manual_seed(0)
        want = plain(X)
        torch.manual_seed(0)
        assert same(translated(X), want) is None


# ---- training steps
def step_with(optimizer, **settings):
    def step(model, x):
        opt = optimizer(model.parameters(), lr=0.1, **settings)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
        for _ in range(2):
            opt.zero_grad()
            loss = F.mse_loss(model(x), torch.zeros(3, 2))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
        return loss.detach(), opt.param_groups[0]["lr"]
    return step


@pytest.mark.parametrize("optimizer, settings", [
    (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.AdamW, {}), (torch.optim.Adam, {"foreach": True}),
    (torch.optim.RMSprop, {})], ids=lambda v: getattr(v, "__name__", ""))
def test_a_training_step_inside_is_right(optimizer, settings):
    torch.manual_seed(0)
    step = step_with(optimizer, **settings)
    plain, mine = nn.Linear(4, 2), nn.Linear(4, 2)
    mine.load_state_dict(plain.state_dict())
    translated = sot.to_static(step, backend=Counter())
    for _ in range(3):
        assert same(translated(mine, X), step(plain, X)) is None
        assert all(map(torch.equal, mine.parameters(), plain.parameters()))


def test_gradients_accumulate_over_calls():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 2))
    mine = copy.deepcopy(plain)
    translated = sot.to_static(mine)
    for i in range(3):
        for module, run in ((plain, plain), (mine, translated)):
            torch.manual_seed(i)
            run(X + i).sum().backward()
    for a, b in zip(mine.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad)
    assert same(mine.state_dict(), plain.state_dict()) is None


def test_batch_norm_that_only_reads_its_statistics_is_no_change():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.table = nn.BatchNorm1d(4), nn.Embedding(6, 4)

        def forward(self, i):
            self.seen = i.shape
            return self.table(self.norm(self.table(i)).argmax(1))
    check(Net().eval(), torch.tensor([1, 5, 2]), graphs=1, breaks=0)


def test_dropout_by_a_number_raises_nothing_when_the_graph_runs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            self.seen = x.shape
            return nn.functional.dropout(self.norm(x), 0.5)
    check(Net().train(), torch.rand(3, 4), graphs=1, breaks=0)
