"""CUDA graphs without CUDA: a recorder that runs the same function again, in the same memory."""
from __future__ import annotations

import ctypes
import gc

import torch

from sot.backends.triton.cuda_graphs import Recorded

ALIVE: list[torch.Tensor] = []


class Memory:
    """Records like CUDA: nothing runs while it is recorded, and a replay works on the memory that was there then."""

    def __init__(self, device=None) -> None:
        self.recorded, self.replayed, self.followed, self.generators = 0, 0, 0, []

    def records(self, tensor):
        return tensor.device.type == "cpu"

    def follow(self):
        self.followed += 1

    def record(self, run, inputs, generators):
        self.recorded += 1
        self.generators = list(generators)
        places = [unheld(v) for v in inputs]
        draws = [torch.default_generator, *generators]
        before, states = [whole(place).clone() for place in places], [g.get_state() for g in draws]
        results = run(list(inputs))
        gc.collect(1)       # Triton's interpreter leaves cycles with the storages of its arguments
        for place, content in zip(places, before):
            whole(place).copy_(content)
        for generator, state in zip(draws, states):
            generator.set_state(state)
        into = [unheld(r) if isinstance(r, torch.Tensor) else None for r in results]

        def replay():
            self.replayed += 1
            for old, new in zip(into, run(list(places))):
                if old is not None and old.data_ptr() != new.data_ptr():
                    whole(old).copy_(whole(new))
        return results, replay


def unheld(tensor):
    """The same memory, which is free to go: a CUDA graph holds nothing but addresses."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def whole(tensor):
    """All elements, each once, of a tensor that may repeat some."""
    for dim, stride in enumerate(tensor.stride()):
        tensor = tensor.narrow(dim, 0, 1) if stride == 0 and tensor.shape[dim] > 1 else tensor
    return tensor.data


class Calls:
    """A module's function under test, and what it was given."""

    def __init__(self, fn, visible, **more) -> None:
        self.memory, self.launched = Memory(), 0
        self.fn = fn
        self.run = Recorded(self._launch, visible, self.memory, **more)

    def _launch(self, inputs):
        self.launched += 1
        given = list(inputs)
        inputs.clear()
        with torch.no_grad():
            return self.fn(*given)

    def __call__(self, *args):
        return self.run(list(args))

    @property
    def counts(self):
        return self.memory.recorded, self.memory.replayed


def full(value, *shape):
    """A tensor of this value, which stays alive: no later one has its address."""
    ALIVE.append(torch.full(shape or (2,), float(value)))
    return ALIVE[-1]
