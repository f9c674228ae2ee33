"""``torch.optim``, ``torch.amp`` and ``torch.utils``."""
from __future__ import annotations

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
import torch.nn.utils.rnn as rnn
import torch.utils._pytree as pytree
import torch.utils.dlpack
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from .modules import with_
from .program import Group, plain

# ---- torch.optim ----
optim = Group("torch.optim")


def trained(make):
    """Arguments: a model, its optimizer, and the data."""
    def arguments():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        return model, make(model.parameters()), *plain()
    return arguments


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach(), [p.detach().clone() for p in model.parameters()]


def steps_of(name, make):
    def run(model, optimizer, x):
        return step(model, optimizer, x)
    run.__name__ = run.__qualname__ = f"a_step_of_{name}"
    optim.of(trained(make))(run)


steps_of("SGD_with_momentum", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
steps_of("Adam", lambda p: torch.optim.Adam(p, 0.01))
steps_of("AdamW_amsgrad", lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True))
steps_of("RMSprop", lambda p: torch.optim.RMSprop(p, 0.01, centered=True))
steps_of("Adagrad", lambda p: torch.optim.Adagrad(p, 0.01))
steps_of("Adafactor", lambda p: torch.optim.Adafactor(p, 0.01))
steps_of("NAdam_without_foreach", lambda p: torch.optim.NAdam(p, 0.01, foreach=False))


@optim.of(trained(lambda p: torch.optim.LBFGS(p, 0.1, max_iter=3)))
def a_step_with_a_closure(model, optimizer, x):
    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss
    return optimizer.step(closure).detach(), [p.detach().clone() for p in model.parameters()]


@optim.of(trained(lambda p: torch.optim.SGD(p, 0.1)))
def a_scheduler(model, optimizer, x):
    schedule = lr_scheduler.StepLR(optimizer, 2, 0.5)
    rates = []
    for _ in range(3):
        step(model, optimizer, x)
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    return rates, [p.detach().clone() for p in model.parameters()]


@optim.of(trained(lambda p: torch.optim.AdamW(p, 0.1)))
def rates_set_by_hand(model, optimizer, x):
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * 0.5
    step(model, optimizer, x)
    return optimizer.param_groups[0]["lr"], model(x)


@optim.of(trained(lambda p: torch.optim.SGD([{"params": list(p), "lr": 0.2}], 0.1)))
def accumulated_gradients(model, optimizer, x):
    for part in x.split(1):
        (model(part).mean() / 3).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, [p.detach().clone() for p in model.parameters()]


@optim.of(trained(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)))
def the_state_of_an_optimizer(model, optimizer, x):
    step(model, optimizer, x)
    state = optimizer.state_dict()
    return len(state["state"]), [s["momentum_buffer"] for s in optimizer.state.values()]


@optim.of(trained(lambda p: torch.optim.SGD(p, 0.1)))
def averaged_models(model, optimizer, x):
    average = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(2):
        step(model, optimizer, x)
        average.update_parameters(model)
    return average(x), average.n_averaged


@optim.of(trained(lambda p: torch.optim.SGD(p, 0.1)))
def a_scheduler_of_losses(model, optimizer, x):
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(3):
        loss, _ = step(model, optimizer, x)
        schedule.step(loss)
    return optimizer.param_groups[0]["lr"]


@optim.of(trained(lambda p: torch.optim.SGD(p, 0.1)))
def hooks_of_optimizers(model, optimizer, x):
    seen = []
    handle = optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(len(o.param_groups)))
    step(model, optimizer, x)
    handle.remove()
    return seen


# ---- torch.amp ----
amp = Group("torch.amp", with_(lambda: nn.Linear(4, 4)))


@amp
def autocast(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        y = m(x)
        z = y.softmax(-1)
    return y.dtype, z.dtype, (y.float() * z).sum()


@amp
def autocast_as_a_decorator(m, x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def run(v):
        return m(v)
    return run(x)


@amp
def autocast_off_inside(m, x):
    with torch.amp.autocast("cpu", torch.bfloat16):
        y = m(x)
        with torch.amp.autocast("cpu", enabled=False):
            z = m(y.float())
    return y, z


@amp
def questions_of_autocast(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        on, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return m(x), on, dtype, torch.is_autocast_enabled("cpu"), torch.amp.is_autocast_available("cpu")


class Half(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


@amp
def functions_under_autocast(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        return Half.apply(m(x))


@amp
def a_scaler(m, x):
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    scaler.scale(m(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), m.weight.detach().clone()


@amp
def a_scaler_that_is_off(m, x):
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    scaler.scale(m(x).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return m.weight.detach().clone()


@amp
def a_loop_under_autocast(m, x):
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            x = m(x)
        x = x.float()
    return x


# ---- torch.utils and torch.nn.utils ----
utils = Group("torch.utils", with_(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))))


@utils
def checkpoints(m, x):
    return checkpoint(m, x, use_reentrant=False), checkpoint_sequential(m, 2, x, use_reentrant=False)


@utils
def reentrant_checkpoints(m, x):
    return checkpoint(m, x, use_reentrant=True)


@utils
def gradients_clipped(m, x):
    m(x).sum().backward()
    a = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
    nn.utils.clip_grad_value_(m.parameters(), 0.1)
    return a, nn.utils.get_total_norm([p.grad for p in m.parameters()]), m[0].weight.grad


@utils
def parameters_as_a_vector(m, x):
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v.detach() * 0.5, m.parameters())
    return v, m(x)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T


@utils
def parametrized_modules(m, x):
    parametrize.register_parametrization(m[0], "weight", Symmetric())
    return m(x), parametrize.is_parametrized(m[0]), m[0].weight


@utils
def parametrizations_called(m, x):
    parametrize.register_parametrization(m[0], "weight", Symmetric())
    with parametrize.cached():
        y = m(x)
    parametrize.remove_parametrizations(m[0], "weight")
    return y, m[0].weight


@utils.of(with_(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))))
def normed_weights(m, x):
    return m(x)


@utils.of(with_(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))))
def spectral_norms(m, x):
    return m(x), m(x)


@utils
def pruned_modules(m, x):
    from torch.nn.utils import prune
    prune.l1_unstructured(m[0], "weight", amount=0.5)
    return m(x), m[0].weight_mask.sum()


@utils.of(with_(lambda: nn.GRU(4, 4, batch_first=True)))
def packed_sequences(m, x):
    batch = rnn.pad_sequence([x, x[:2]], batch_first=True)
    packed = rnn.pack_padded_sequence(batch, [3, 2], batch_first=True)
    out, h = m(packed)
    return rnn.pad_packed_sequence(out, batch_first=True), h


@utils
def fused_modules(m, x):
    conv, norm = nn.Conv1d(3, 2, 1).eval(), nn.BatchNorm1d(2).eval()
    return nn.utils.fuse_conv_bn_eval(conv, norm)(x[None]), nn.utils.skip_init(nn.Linear, 4, 2).weight.shape


@utils
def trees(m, x):
    tree = {"a": x, "b": [x * 2, (x[0], None)]}
    leaves, spec = pytree.tree_flatten(tree)
    return (
        pytree.tree_map(lambda t: t + 1 if t is not None else t, tree), len(leaves),
        pytree.tree_unflatten(leaves, spec))


@utils
def loaders_of_data(m, x):
    total = 0
    for batch, target in DataLoader(TensorDataset(x.detach(), torch.arange(3)), batch_size=2):
        total = total + m(batch).sum() * target.sum()
    return total


class Rows(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"row": self.x[i], "index": i}


@utils
def datasets(m, x):
    rows = Rows(x.detach())
    first, second = random_split(rows, [2, 1], generator=torch.Generator().manual_seed(0))
    return [m(item["row"]) for item in first], second[0]["index"], torch.utils.data.default_collate([rows[0], rows[1]])


@utils
def capsules(m, x):
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach() * 2)) + 1


@utils
def counted_operations(m, x):
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as counter:
        y = m(x)
    return y, counter.get_total_flops()


@utils
def profiled(m, x):
    with torch.profiler.record_function("forward"):
        y = m(x)
    return F.relu(y)
