"""Programs with DTensors and collectives, for two processes: python -m torch.distributed.run ... BACKEND FOLDER

Each rank writes, for each program, whether results and losses are plain Python's, and its graphs and breaks.
"""
import datetime
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._pytree import tree_leaves

import sot

A_MINUTE = datetime.timedelta(minutes=1)
GRID = None     # a mesh of two dimensions
SCALES = nn.Parameter(torch.arange(4.0))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def tensor_parallel(mesh):
    return parallelize_module(Mlp(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def sequence_parallel(mesh):
    prepare = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    return parallelize_module(Block(), mesh, {
        "norm": SequenceParallel(), "mlp": prepare, "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1))})


def made_inside(x, mesh):
    d = DTensor.from_local(x, mesh, [Shard(0)])
    y = (d * 2).sin()
    return y.redistribute(mesh, [Replicate()]).to_local(), y.full_tensor(), y.shape, y.placements == (Shard(0),)


def partial_sums(x, mesh):
    d = DTensor.from_local(x, mesh, (Partial(),), run_check=False)
    return (d.redistribute(placements=[Replicate()]) + 1).to_local().sum()


def functional_collectives(x, mesh):
    y = collectives.all_reduce(x * 2, "sum", dist.group.WORLD)
    z = collectives.all_gather_tensor(y + 1, 0, mesh)
    return (z * 3).sum() + collectives.reduce_scatter_tensor(z * 1.0, "sum", 0, mesh).sum()


def in_place(x, mesh):
    y = x * 2
    dist.all_reduce(y)
    z = y + 1
    dist.broadcast(z, 0)
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=dist.group.WORLD)
    return y, z, x, dist.get_world_size(), dist.get_rank()


def overlapping(x, mesh):
    a, b = x * 2, x + 1
    works = [dist.all_reduce(y, async_op=True) for y in (a, b)]
    c = (x * 3).sin()
    assert all(work.wait(A_MINUTE) for work in works) and works[0] is not works[1]
    return a, b, c


def gathered(x, mesh):
    ranks = dist.get_world_size()
    parts = [torch.empty_like(x) for _ in range(ranks)]
    whole, later = x.new_empty(ranks * 2, 4), x.new_empty(ranks * 2, 4)
    dist.all_gather(parts, x * 2)
    dist.all_gather_into_tensor(whole, x + 1)
    work = dist.all_gather_into_tensor(later, x.exp(), async_op=True)
    total = torch.cat(parts).sum() + whole.sum()
    work.wait(A_MINUTE)
    return parts, total, later, work.wait(A_MINUTE)


def scattered(x, mesh):
    ranks = dist.get_world_size()
    own, turned = x.new_empty(2, 4), x.new_empty(2, 4)
    dist.reduce_scatter_tensor(own, x.repeat(ranks, 1), group=dist.group.WORLD)
    dist.all_to_all_single(turned, x * 2, async_op=True).wait(A_MINUTE)
    return own, turned


def one_sum(x, mesh):
    loss = x.square().mean()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    return loss / dist.get_world_size()


def messages(x, mesh):
    """Both ranks send first: a node that sent where the program waits would hang."""
    other, received, count = 1 - dist.get_rank(), torch.empty_like(x), torch.zeros(1, dtype=torch.long)
    works = [dist.isend(x * 2, other), dist.irecv(received, other)]
    y = (x * 3).sin()
    assert all(work.wait(A_MINUTE) for work in works)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.tensor([len(x)]), other, tag=1),
                                    dist.P2POp(dist.irecv, count, other, tag=1)])
    for work in works:
        work.wait(A_MINUTE)
    return received + y, count + 1


def turns(x, mesh):
    received, group = torch.ones_like(x), dist.group.WORLD
    if dist.get_rank(group) == 0:
        dist.send(x + 1, 1, group=group)
        return dist.recv(received, 1), received * 2
    source = dist.recv(received, 0)
    dist.send(received * source, 0)
    return source, received


def to_one_rank(x, mesh):
    """The other ranks hand nothing in."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    total, own = x * 2, torch.empty_like(x)
    parts = [torch.empty_like(x) for _ in range(ranks)] if rank == 1 else None
    dist.reduce(total, 1, op=dist.ReduceOp.MAX)
    dist.gather(x + 1, parts, dst=1)
    work = dist.scatter(own, [x * i for i in range(ranks)] if rank == 1 else None, src=1, async_op=True)
    y = x.sin()
    work.wait()
    return own + y, parts, total if rank == 1 else None


def lists_of_tensors(x, mesh):
    ranks = dist.get_world_size()
    own, turned = torch.empty_like(x), [torch.empty_like(x) for _ in range(ranks)]
    dist.reduce_scatter(own, [x * i for i in range(ranks)])
    dist.all_to_all(turned, [x + i for i in range(ranks)])
    uneven, sizes = x.new_empty(2, 4), [[1, 1], [1, 1]]
    dist.all_to_all_single(uneven, x, *sizes)
    flat = torch.cat([x.flatten(), own.flatten()])
    dist.all_reduce(flat[:4])
    return own, turned, uneven, flat


def barriers(x, mesh):
    y = x * 2
    dist.barrier()
    work = dist.barrier(async_op=True)
    dist.monitored_barrier(timeout=A_MINUTE)
    work.wait()
    return y + 1, work.is_completed()


def flags(x, mesh):
    """Whether any rank stops: a tensor that is made of a number, whose value others change."""
    flag, count, all_flags = torch.tensor(dist.get_rank()), torch.tensor(0), [torch.tensor(0), torch.tensor(0)]
    dist.all_gather(all_flags, flag)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        dist.send(flag + 2, 1)
    else:
        dist.recv(count, 0)
    return flag.item(), count.item(), [n.item() for n in all_flags], x + 1


def slices_of_meshes(x, mesh):
    part = GRID["tp"]
    y = x * part.get_local_rank() + GRID.size()
    dist.all_reduce(y, group=part.get_group())
    d = DTensor.from_local(y, GRID["tp"], [Shard(0)])
    return (d * 2).full_tensor(), part.size(), GRID.get_group("dp") == GRID["dp"].get_group(), part == GRID["tp"]


def gathered_without_gradients(x, mesh):
    parts = [torch.empty_like(SCALES) for _ in range(dist.get_world_size())]
    with torch.no_grad():
        dist.all_gather(parts, SCALES)
    return torch.stack([*parts, SCALES * 2]).sum(0) * x


def handed_in(d, mesh):
    return (d * 2).to_local(), d.to_local() + 1, d.redistribute(mesh, [Replicate()]).to_local(), d.device_mesh is mesh


def train(model, call):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    generator, losses = torch.Generator().manual_seed(7), []
    for _ in range(4):
        y = call(torch.randn(2, 4, 8, generator=generator))
        loss = (y.full_tensor() if isinstance(y, DTensor) else y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def values(result):
    return [(type(leaf).__name__, leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf)
            for leaf in tree_leaves(result)]


def row_of(program, backend):
    """Whether what a program gives is plain Python's, and the graphs and breaks of what it translates first."""
    translated, results = [], []

    def translate(function):
        translated.append(sot.to_static(function, backend=backend))
        return translated[-1]
    for run in (lambda function: function, translate):
        torch.manual_seed(0)
        results.append(values(program(run)))
    found = sot.translation_of(translated[0])
    return [results[0] == results[1], len(found.graphs), [c.stopped.reason.name for c in found.captures if c.stopped]]


def write_rows(rows_of):
    """Write the rows of this rank, for the backend and into the folder of the command line, and end the process."""
    backend, folder = sys.argv[1:]
    dist.init_process_group("gloo")
    Path(folder, f"rank{dist.get_rank()}").write_text(json.dumps(rows_of(backend)))
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def rows_of(backend):
    global GRID
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    GRID = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("dp", "tp"))
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(dist.get_rank()))
    rows = {}

    def note(name, translated, want, got):
        found = sot.translation_of(translated)
        stops = [str(c.stopped) for c in found.captures if c.stopped]
        rows[name] = [values(want) == values(got), len(found.graphs), stops]
    for make in (tensor_parallel, sequence_parallel):
        torch.manual_seed(0)
        plain = make(mesh)
        torch.manual_seed(0)
        model = make(mesh)
        translated = sot.to_static(model, backend=backend)
        note(make.__name__, translated, train(plain, plain), train(model, translated))
    for fn, arg in ((made_inside, x), (partial_sums, x), (functional_collectives, x), (in_place, x), (one_sum, x),
                    (overlapping, x), (gathered, x), (scattered, x), (messages, x), (turns, x),
                    (gathered_without_gradients, x), (to_one_rank, x), (lists_of_tensors, x), (barriers, x),
                    (slices_of_meshes, x),
                    (handed_in, distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))):
        translated = sot.to_static(fn, backend=backend)
        want, got = (call(call(arg.clone(), mesh)[2], mesh) if fn is in_place else call(arg, mesh)
                     for call in (fn, translated))
        note(fn.__name__, translated, [want, want], [got, translated(arg, mesh) if fn is not in_place else got])
    return rows


if __name__ == "__main__":
    write_rows(rows_of)
