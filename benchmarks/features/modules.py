"""``torch.nn`` and ``torch.nn.functional``."""
from __future__ import annotations

import copy
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

from .program import Group, leaf, plain


def with_(make, data=leaf):
    """Arguments: a module, made from the same seed each time, and the tensor."""
    def arguments():
        torch.manual_seed(0)
        return make(), *data()
    return arguments


def image():
    return (torch.arange(96.0).reshape(2, 3, 4, 4) / 96,)


modules = Group("torch.nn")


class Block(nn.Module):
    scale: float = 2.0

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.1)
        self.register_buffer("steps", torch.zeros(()))
        self.calls = 0

    def forward(self, x, *, skip=True):
        self.calls += 1
        self.steps += 1
        y = self.drop(F.gelu(self.linear(self.norm(x)))) * self.scale
        return x + y if skip else y


@modules.of(with_(Block))
def a_block_that_counts(m, x):
    return m(x), m(x, skip=False), m.calls, m.steps.clone()


@modules.of(with_(lambda: nn.Sequential(OrderedDict(a=nn.Linear(4, 8), act=nn.ReLU(), b=nn.Linear(8, 2)))))
def containers(m, x):
    return m(x), m.a(x), m[-1].out_features, len(m), [type(c).__name__ for c in m]


@modules.of(with_(lambda: nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])))
def lists_of_modules(m, x):
    for i, layer in enumerate(m):
        x = layer(x) if i % 2 else x + layer(x)
    return x, m[1:].__class__.__name__, len(m)


@modules.of(with_(lambda: nn.ModuleDict({"relu": nn.ReLU(), "gate": nn.Linear(4, 4)})))
def dicts_of_modules(m, x):
    return [m[name](x) for name in ("relu", "gate")], {k: type(v).__name__ for k, v in m.items()}, "relu" in m


@modules.of(with_(lambda: nn.ParameterList([torch.ones(4), torch.zeros(4)])))
def lists_of_parameters(m, x):
    return sum(x * p for p in m), len(m), [p.requires_grad for p in m.parameters()]


@modules.of(with_(lambda: nn.ParameterDict({"w": torch.ones(4)})))
def dicts_of_parameters(m, x):
    return x * m["w"], list(m.keys()), [x * p for p in m.values()]


@modules.of(with_(lambda: nn.BatchNorm1d(4)))
def batch_norm_in_both_modes(m, x):
    a = m(x)
    m.eval()
    b = m(x)
    m.train()
    return a, b, m.running_mean.clone(), m.num_batches_tracked.clone()


@modules.of(with_(lambda: nn.LSTM(4, 8, num_layers=2, batch_first=True)))
def recurrent_networks(m, x):
    out, (h, c) = m(x[None])
    return out, h, c


@modules.of(with_(lambda: nn.GRUCell(4, 4)))
def a_cell_in_a_loop(m, x):
    h = torch.zeros(4)
    states = []
    for row in x:
        h = m(row, h)
        states.append(h)
    return torch.stack(states)


@modules.of(with_(lambda: nn.MultiheadAttention(4, 2, batch_first=True)))
def attention(m, x):
    out, weights = m(x[None], x[None], x[None])
    return out, weights, m(x, x, x, need_weights=False)[0]


@modules.of(with_(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2).eval()))
def an_encoder(m, x):
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    return m(x[None], mask=mask, is_causal=True)


@modules.of(with_(lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                                        nn.AdaptiveAvgPool2d(1), nn.Flatten()), image))
def convolutions(m, x):
    return m(x)


@modules.of(with_(lambda: nn.Embedding(10, 4, padding_idx=0)))
def embeddings(m, x):
    return m(x.long()), m.weight[2], m(torch.tensor([0]))


@modules.of(with_(lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))))
def parameters_walked(m, x):
    y = m(x)
    return y, sum(p.numel() for p in m.parameters()), [n for n, _ in m.named_parameters()], sum(
        (p ** 2).sum() for p in m.parameters()), [n for n, _ in m.named_modules()]


@modules.of(with_(lambda: nn.Linear(4, 4)))
def state_dicts(m, x):
    state = {k: v * 2 for k, v in m.state_dict().items()}
    m.load_state_dict(state)
    return m(x), list(state)


@modules.of(with_(lambda: nn.Linear(4, 4)))
def hooks_of_modules(m, x):
    seen = []
    handle = m.register_forward_hook(lambda mod, args, out: seen.append(out.mean()))
    before = m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    y = m(x)
    handle.remove()
    before.remove()
    return y, seen, m(x)


@modules.of(with_(lambda: nn.Linear(4, 4)))
def backward_hooks_of_modules(m, x):
    seen = []
    handle = m.register_full_backward_hook(lambda mod, gin, gout: seen.append(gout[0].sum()))
    m(x * 2).sum().backward()
    handle.remove()
    return seen, m.weight.grad


@modules.of(with_(lambda: nn.Linear(4, 4)))
def modules_changed(m, x):
    m.weight.data.fill_(0.5)
    nn.init.zeros_(m.bias)
    m.extra = nn.Linear(4, 2)
    m.requires_grad_(False)
    return m.extra(m(x)), m.weight.requires_grad, len(list(m.children()))


@modules.of(with_(lambda: nn.Linear(4, 4)))
def modules_copied(m, x):
    other = copy.deepcopy(m)
    with torch.no_grad():
        other.weight.mul_(0.9).add_(m.weight, alpha=0.1)
    return other(x) - m(x)


@modules
def modules_made_inside(x):
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    nn.init.xavier_uniform_(net[0].weight)
    return net(x), net.training


@modules.of(with_(lambda: nn.LazyLinear(3)))
def lazy_modules(m, x):
    return m(x), type(m).__name__, m.in_features


@modules.of(with_(lambda: nn.Linear(4, 4)))
def modules_moved_and_applied(m, x):
    m.apply(lambda mod: mod.__setattr__("seen", True))
    return m.double()(x.double()), m.seen, m.to(torch.float32)(x), m.eval().training


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.tokens.weight
        self.scale = nn.Parameter(torch.ones(1))

    def __getattr__(self, name):
        if name == "twice":
            return 2
        return super().__getattr__(name)

    @property
    def width(self):
        return self.tokens.embedding_dim

    def forward(self, x):
        return self.head(self.tokens(x.long())) * self.scale / self.width ** 0.5 * self.twice


@modules.of(with_(Tied, plain))
def tied_weights_and_properties(m, x):
    return m(x), m.head.weight is m.tokens.weight


@modules.of(with_(lambda: nn.CrossEntropyLoss(label_smoothing=0.1)))
def losses_as_modules(m, x):
    t = torch.tensor([0, 1, 3])
    return (
        m(x, t), nn.MSELoss(reduction="none")(x, x * 2), nn.HuberLoss()(x, x + 1),
        nn.BCEWithLogitsLoss()(x, x.detach() / 2))


functional = Group("torch.nn.functional", leaf)


@functional
def activations(x):
    return [f(x) for f in (F.relu, F.gelu, F.silu, F.elu, F.selu, F.mish, F.softplus, F.hardswish,
                               F.logsigmoid, F.tanhshrink)]


@functional
def activations_in_place(x):
    return (
        F.relu(x * 2, inplace=True), F.leaky_relu_(x - 1), F.threshold(x, 0.5, 0.0), F.glu(x),
        F.prelu(x, torch.ones(1)))


@functional
def softmaxes(x):
    return F.softmax(x, -1), F.log_softmax(x, 1, dtype=torch.float64), F.softmin(x, 0), F.normalize(x, dim=1)


@functional
def gumbel(x):
    return F.gumbel_softmax(x, hard=True), F.gumbel_softmax(x, tau=0.5)


@functional
def dropouts(x):
    return (
        F.dropout(x, 0.5), F.dropout(x, training=False), F.alpha_dropout(x, 0.2, True),
        F.feature_alpha_dropout(x, 0.1, True))


@functional
def losses(x):
    t = torch.tensor([0, 1, 3])
    return (
        F.cross_entropy(x, t, ignore_index=1), F.nll_loss(F.log_softmax(x, 1), t), F.smooth_l1_loss(x, x * 2),
        F.kl_div(F.log_softmax(x, 1), F.softmax(x, 1), reduction="batchmean"), F.multi_margin_loss(x, t))


@functional
def losses_of_pairs(x):
    return (
        F.cosine_embedding_loss(x, x + 1, torch.ones(3)), F.triplet_margin_loss(x, x + 1, x * 2),
        F.pairwise_distance(x, x + 1), F.cosine_similarity(x, x + 1), F.margin_ranking_loss(x[0], x[1], torch.ones(4)))


@functional
def connectionist_temporal_classification(x):
    logs = F.log_softmax(x[:, None].expand(3, 1, 4), -1)
    return F.ctc_loss(logs, torch.tensor([[1, 2]]), torch.tensor([3]), torch.tensor([2]))


@functional.of(image)
def convolved(x):
    w = torch.ones(4, 3, 2, 2)
    return (
        F.conv2d(x, w, padding="same"), F.conv_transpose2d(x, w.transpose(0, 1)), F.unfold(x, 2),
        F.conv1d(x[0].transpose(0, 1), w[:2, :, 0]))


@functional.of(image)
def pooled(x):
    y, i = F.max_pool2d(x, 2, return_indices=True)
    return y, F.max_unpool2d(y, i, 2), F.avg_pool2d(x, 2), F.adaptive_max_pool2d(x, (1, 2)), F.lp_pool2d(x, 2, 2)


@functional.of(image)
def resampled(x):
    grid = F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), x.size(), align_corners=False)
    return (
        F.grid_sample(x, grid, align_corners=False), F.interpolate(x, scale_factor=2, mode="bilinear"),
        F.interpolate(x, size=(2, 3)), F.pixel_unshuffle(x, 2))


@functional.of(image)
def padded(x):
    return F.pad(x, (1, 1, 0, 0), "reflect"), F.pad(x, (1, 0, 2, 0), value=3.0), F.pad(x, (0, 1, 0, 1), "circular")


@functional
def norms(x):
    return F.layer_norm(x, (4,)), F.rms_norm(x, (4,)), F.batch_norm(x, None, None, training=True), F.group_norm(x, 2), (
        F.instance_norm(x[None]), F.local_response_norm(x[None], 2))


@functional
def dot_products(x):
    q = x.view(1, 1, 3, 4)
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, q, q, is_causal=True), F.scaled_dot_product_attention(q, q, q, mask)


@functional
def one_hots_and_bags(x):
    i = torch.tensor([0, 2, 1])
    return F.one_hot(i), F.one_hot(i, 5), F.embedding(i, x), F.embedding_bag(i, x, torch.tensor([0, 2]), mode="sum")


@functional
def bilinear_and_linear(x):
    return F.linear(x, torch.ones(2, 4), torch.ones(2)), F.bilinear(x, x, torch.ones(2, 4, 4)), F.pdist(x)


@functional
def a_function_chosen_by_name(x):
    return getattr(F, "relu")(x), {"gelu": F.gelu, "tanh": torch.tanh}["tanh"](x), F.gelu(x, approximate="tanh")


@functional
def attention_with_scores(x):
    from torch.nn.attention.flex_attention import flex_attention
    q = x.detach().repeat(1, 4).view(1, 1, 3, 16)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -1e9))
