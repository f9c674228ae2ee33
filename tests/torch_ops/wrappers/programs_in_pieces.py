"""Programs of several processes of which Python runs a part: python -m torch.distributed.run ... BACKEND FOLDER

Each rank writes, for each program, whether results and weights are plain Python's, and the numbers of its graphs and
breaks.
"""
import datetime
import time

import torch
import torch.distributed as dist
from distributed_programs import Mlp, row_of, write_rows
from torch.nn.parallel import DistributedDataParallel


def whole_step(model, translate):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    step = translate(step)
    return [step(batch(i)) for i in range(5)], weights(model)


def ddp_step(translate):
    return whole_step(DistributedDataParallel(Mlp()), translate)


class Copied(torch.autograd.Function):
    """The input of columns of a weight: each rank has a part of its gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Summed(torch.autograd.Function):
    """The output of rows of a weight, of which each rank has a part."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def parallel_by_hand(translate):
    model = Mlp()
    call = translate(lambda x: Summed.apply(model.down(torch.relu(model.up(Copied.apply(x))))))
    found = []
    for i in range(3):
        x = batch(i).requires_grad_()
        loss = call(x).square().mean()
        loss.backward()
        found.append((loss.detach(), x.grad))
    return found, [p.grad for p in model.parameters()]


def objects(translate):
    def fn(x):
        y, found = x * 2, [None] * dist.get_world_size()
        dist.all_gather_object(found, {"rank": dist.get_rank(), "shape": tuple(x.shape)})
        dist.barrier()
        return y + len(found), found
    fn = translate(fn)
    return [fn(batch(i)) for i in range(3)]


def waited_for_elsewhere(translate):
    def start(x):
        received = torch.empty_like(x)
        return received, [dist.isend(x + 1, 1 - dist.get_rank()), dist.irecv(received, 1 - dist.get_rank())]
    start, found = translate(start), []
    for i in range(3):
        received, works = start(batch(i))
        assert all(work.wait(datetime.timedelta(minutes=1)) for work in works)
        found.append(received)
    return found


def flags(translate):
    """Whether any rank stops. The tensor is made of a number, whose value the others change."""
    def step(stops, x):
        flag = torch.tensor(int(stops))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            return "stop"
        return x * 2
    step = translate(step)
    return [step(i == dist.get_rank(), batch(i)) for i in range(4)]


def too_late(translate):
    """Nothing is sent: the wait ends with an exception, in the handler that the program has around its call."""
    def receive(x):
        received, group = torch.empty_like(x), groups[0]
        y = x * 2
        dist.irecv(received, 1 - dist.get_rank(), group=group).wait(datetime.timedelta(seconds=0.2))
        return y + received
    receive, found = translate(receive), []
    for i in range(2):
        groups = [dist.new_group()]
        start = time.perf_counter()
        try:
            receive(batch(i))
        except RuntimeError as error:
            found.append((type(error).__name__, time.perf_counter() - start < 10))
    return found


def batch(i):
    return torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(10 * i + dist.get_rank()))


def weights(model):
    return [getattr(p, "_local_tensor", p).detach() for p in model.parameters()]


def rows_of(backend):
    programs = (ddp_step, objects, waited_for_elsewhere, flags, too_late, parallel_by_hand)
    return {program.__name__: row_of(program, backend) for program in programs}


if __name__ == "__main__":
    write_rows(rows_of)
