"""Translated models in other processes: DistributedDataParallel, DataParallel, workers of a DataLoader, pickles."""
import pickle
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import sot


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x)


def gradients(model, x):
    model(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


# ---- DistributedDataParallel --------------------------------------------------------------------------------
def train_on_one_of_two(rank, meeting, queue):
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2, timeout=timedelta(seconds=120))
    torch.set_num_threads(1)
    found = {}
    data = torch.arange(8.0).reshape(2, 4)[rank:rank + 1]
    for name in "plain", "translated inside", "translated outside":
        torch.manual_seed(0)
        model = Net()
        if name == "translated inside":
            sot.to_static(model, backend="eager")
        model = DistributedDataParallel(model)
        if name == "translated outside":
            sot.to_static(model, backend="eager")
        found[name] = [[g.numpy() for g in gradients(model, data)] for _ in range(2)]
    if rank == 0:
        queue.put(found)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_average_their_gradients_as_ever(tmp_path):
    context = mp.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=train_on_one_of_two, args=(rank, tmp_path / "meeting", queue), daemon=True)
               for rank in range(2)]
    for worker in workers:
        worker.start()
    found = queue.get(timeout=240)
    for worker in workers:
        worker.join(300)
        assert worker.exitcode == 0
    want = found.pop("plain")
    for name, got in found.items():
        for mine, theirs in zip(got, want, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                torch.testing.assert_close(torch.from_numpy(a), torch.from_numpy(b), msg=name)


# ---- workers ----------------------------------------------------------------------------------------------
class Normalized(Dataset):
    """A data set whose items a translated function makes, in the worker."""

    def __init__(self):
        self.normalize = sot.to_static(normalize, backend="eager")

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return self.normalize(torch.arange(4.0) + i)


def normalize(x):
    return (x - x.mean()) / x.std()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_translated_function_in_the_workers_of_a_data_loader(method):
    normalize(torch.arange(4.0))
    data = Normalized()
    data[0]     # captured here already, which a forked worker inherits
    loader = DataLoader(data, batch_size=3, num_workers=2, multiprocessing_context=method, timeout=240)
    got = torch.cat(list(loader))
    torch.testing.assert_close(got, torch.stack([normalize(torch.arange(4.0) + i) for i in range(6)]))


def test_a_translated_training_loop_over_a_data_loader():
    def train(model, loader):
        total = 0.0
        for x, y in loader:
            total = total + nn.functional.mse_loss(model(x), y)
        return total

    torch.manual_seed(0)
    model, loader = Net(), DataLoader([(torch.randn(4), torch.randn(1)) for _ in range(12)], batch_size=4)
    torch.testing.assert_close(sot.to_static(train, backend="eager")(model, loader), train(model, loader))


# ---- DataParallel, pickles ----------------------------------------------------------------------------------
def test_data_parallel_without_gpus_calls_the_model():
    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 4)
    want = model(x)
    torch.testing.assert_close(nn.DataParallel(sot.to_static(model, backend="eager"))(x), want)


def test_a_pickled_model_is_plain_and_equal():
    model = sot.to_static(Net(), backend="eager")
    x = torch.randn(3, 4)
    model(x)
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(x), model(x))
