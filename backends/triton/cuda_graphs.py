"""``mode="reduce-overhead"``: a module's launches recorded as a CUDA graph, which starts them all at once.

A CUDA graph reads and writes the same memory at every replay. So inputs whose address is another at each call are
copied to places of their own first, those that stay where they are (parameters, what the forward graph keeps for the
backward one) are read there. Results that the program sees are copied out; what autograd keeps is not, and while it is
kept, nothing is replayed over it: the kernels are launched one by one that time.
"""
from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from sot.torch_compat import compilers

BACKENDS = logging.getLogger("sot.backends")
ATTEMPTS = 3        # recordings, at most: an input that moved after all is copied in the next one

Run = Callable[[list[Any]], Sequence[Any]]


class Graphs(Protocol):
    """What records: ``Cuda``, or something that a test looks into."""

    def records(self, tensor: torch.Tensor) -> bool:
        """Is the tensor in memory that a graph can work on?"""

    def record(self, run: Run, inputs: list[Any], generators: Sequence[Any]) -> tuple[Sequence[Any], Callable]:
        """Record what ``run`` launches with these inputs: its results, and what replays it."""


class Cuda:
    """torch's CUDA graphs, each with memory of its own."""

    def records(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def record(self, run: Run, inputs: list[Any], generators: Sequence[Any]) -> tuple[Sequence[Any], Callable]:
        graph = torch.cuda.CUDAGraph()
        for generator in generators:    # the default one is registered anyway: its state goes on at each replay
            graph.register_generator_state(generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results = run(inputs)
        return results, graph.replay


@dataclasses.dataclass
class Recording:
    """One recorded graph.

    ``places`` holds, for an input that is copied, where to; for the others ``addresses`` says where they must be.
    ``of_inputs`` holds, for a result that is a view of an input read where it is: which, sizes, strides, offset.
    """

    places: dict[int, torch.Tensor]
    addresses: dict[int, int]
    results: list[Any]
    of_inputs: dict[int, tuple]
    replay: Callable[[], None]
    idle: dict[int, int] = dataclasses.field(default_factory=dict)

    def fits(self, inputs: Sequence[Any]) -> bool:
        return all(inputs[i].data_ptr() == address for i, address in self.addresses.items())

    def is_free(self) -> bool:
        """Does nobody hold results of the last replay any more?"""
        return all(compilers.storage_users(self.results[i]) <= count for i, count in self.idle.items())

    def run(self, inputs: Sequence[Any], visible: int) -> list[Any]:
        for i, place in self.places.items():
            place.copy_(inputs[i])
        self.replay()
        return [self._given(i, result, inputs, visible) for i, result in enumerate(self.results)]

    def _given(self, i: int, result: Any, inputs: Sequence[Any], visible: int) -> Any:
        if i in self.of_inputs:
            source, shape, strides, offset = self.of_inputs[i]
            return inputs[source].as_strided(shape, strides, inputs[source].storage_offset() + offset)
        if not isinstance(result, torch.Tensor):
            return result
        return result.clone() if i < visible else result.detach()   # a tensor of its own, so that its users count


class Recorded:
    """The function of a module, launched a few times, then recorded and replayed.

    Arguments:
        run: takes the list of inputs, which it may empty.
        visible: how many results, the first ones, the program sees; the others are autograd's.
        generators: of random numbers, beside the default ones, that the module draws from.
        after: how many calls are launched first; the last of them shows which inputs move. A backward graph has to
            wait for the forward graph to be recorded.
    """

    def __init__(self, run: Run, visible: int, generators: Sequence[Any] = (), after: int = 1,
                 graphs: Graphs | None = None) -> None:
        self.launch, self.visible, self.generators = run, visible, generators
        self.graphs: Graphs = graphs or Cuda()
        self.after = after
        self.seen: list[int | None] = []
        self.moving: set[int] = set()
        self.recording: Recording | None = None
        self.attempts = 0

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        tensors = {i: v for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)}
        if self.attempts > ATTEMPTS or not all(map(self.graphs.records, tensors.values())):
            return self.launch(inputs)
        if self.recording is None or not self.recording.fits(inputs):
            addresses = [tensors[i].data_ptr() if i in tensors else None for i in range(len(inputs))]
            if self.after > 0:
                self.after, self.seen = self.after - 1, addresses
                return self.launch(inputs)
            self.moving |= {i for i in tensors if addresses[i] != self.seen[i]}
            self.seen = addresses
            if self.recording is not None and not self.recording.is_free():
                return self.launch(inputs)
            return self._record(inputs, tensors)
        if not self.recording.is_free():
            return self.launch(inputs)
        return self.recording.run(inputs, self.visible)

    def _record(self, inputs: list[Any], tensors: dict[int, torch.Tensor]) -> Sequence[Any]:
        self.attempts += 1
        self.recording = None
        places = {i: torch.empty_like(tensors[i]).copy_(tensors[i]) for i in self.moving}
        given = [places.get(i, v) for i, v in enumerate(inputs)]
        try:
            results, replay = self.graphs.record(self.launch, given, self.generators)
        except Exception as error:      # an operator that a CUDA graph cannot hold
            BACKENDS.debug("reduce-overhead: launched one by one, because recording failed: %s", error)
            self.attempts = ATTEMPTS + 1
            return self.launch(inputs)
        fixed = {i: t for i, t in tensors.items() if i not in places}
        of_inputs = {i: found for i, r in enumerate(results) if (found := _view_of(r, fixed)) is not None}
        made = Recording(places, {i: t.data_ptr() for i, t in fixed.items()}, list(results), of_inputs, replay)
        kept = [i for i, r in enumerate(results)
                if i >= self.visible and i not in of_inputs and isinstance(r, torch.Tensor)]
        made.idle = {i: compilers.storage_users(made.results[i]) for i in kept}
        self.recording = made
        return made.run(inputs, self.visible)


def _view_of(result: Any, inputs: dict[int, torch.Tensor]) -> tuple | None:
    """The input that a result is a view of, and which view."""
    if not isinstance(result, torch.Tensor):
        return None
    for i, tensor in inputs.items():
        if tensor.untyped_storage().data_ptr() == result.untyped_storage().data_ptr() and tensor.dtype == result.dtype:
            offset = result.storage_offset() - tensor.storage_offset()
            return i, tuple(result.shape), tuple(result.stride()), offset
    return None
