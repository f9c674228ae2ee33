"""Tracks which arrays and tensors share memory."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.torch_compat.tensors import storage_id

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


class Memory:
    """Memory that several arrays and tensors view. ``outside``: whether it may belong to something that existed
    before.
    """

    def __init__(self, outside: bool = False) -> None:
        self.outside = outside
        self.held: list[torch.UntypedStorage] = []      # of fakes; holding them keeps their ids valid
        self.storages: set[int] = set()


class ArrayMemory:
    """The memory of the arrays in a trace."""

    def __init__(self) -> None:
        self.outside = Memory(True)
        self.of_tensors: dict[int, Memory] = {}     # by the storage of a fake
        self.is_written = False

    def of(self, fake: torch.Tensor) -> Memory:
        return self.of_tensors.get(storage_id(fake)) or self.add(Memory(), fake)

    def add(self, memory: Memory, fake: torch.Tensor) -> Memory:
        memory.held.append(fake.untyped_storage())
        memory.storages.add(storage_id(fake))
        self.of_tensors[storage_id(fake)] = memory
        return memory

    def sharing(self, storages: set[int]) -> set[int]:
        """All storages of fakes that are the same memory as one of these."""
        found = (self.of_tensors[s].storages for s in storages if s in self.of_tensors)
        return storages.union(*found)

    def is_visible(self, m: Machine, memory: Memory) -> bool:
        """Whether a change of it would be seen if Python ran the frame again."""
        return memory.outside or not memory.storages.isdisjoint(
            storage_id(ref.fake) for ref in m.builder.inputs if isinstance(ref.fake, torch.Tensor))
