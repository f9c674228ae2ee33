"""Train in two processes with DistributedDataParallel: the model inside of the wrapper is captured."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sot

PROCESSES, STEPS = 2, 4


def losses(rank: int, translate: bool) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    if translate:
        sot.to_static(model, backend="eager")
    wrapped = DistributedDataParallel(model)
    optimizer, found = torch.optim.SGD(wrapped.parameters(), lr=0.1), []
    torch.manual_seed(rank)
    for _ in range(STEPS):
        x = torch.randn(8, 4)
        loss = (wrapped(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()     # averages the gradients of all processes
        optimizer.step()
        found.append(loss.item())
    if translate:
        assert len(sot.translation_of(model).graphs) == 1
    return found


def work(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    try:
        found = losses(rank, translate=True)
        assert found == losses(rank, translate=False)
        print(f"process {rank}: loss {found[0]:.3f}, then {found[-1]:.3f}")
    finally:
        dist.destroy_process_group()


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port,), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
