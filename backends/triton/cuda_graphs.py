"""``mode="reduce-overhead"``: a CUDA graph records the launches of a module and starts them all at once.

A CUDA graph accesses the same memory at every replay. Inputs whose address changes from call to call are first copied
to fixed places. Inputs that do not move (parameters, tensors that the forward graph keeps for the backward one) are
read in place. Results that the program sees are copied out. Results that autograd keeps are not copied, so while they
are held there is no replay, and the kernels are launched one by one.
"""
from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from sot.torch_compat import compilers

BACKENDS = logging.getLogger("sot.backends")
ATTEMPTS = 3        # greatest number of recordings; an input that has moved is copied in the next one

Run = Callable[[list[Any]], Sequence[Any]]


class Graphs(Protocol):
    """The recorder: ``Cuda``, or a replacement in tests."""

    def records(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is in memory that a graph can access."""

    def record(self, run: Run, inputs: list[Any], generators: Sequence[Any]) -> tuple[Sequence[Any], Callable]:
        """Record the launches of ``run`` with these inputs. Returns its results, and a function that replays it."""


class Cuda:
    """torch's CUDA graphs, each with its own memory."""

    def records(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def record(self, run: Run, inputs: list[Any], generators: Sequence[Any]) -> tuple[Sequence[Any], Callable]:
        graph = torch.cuda.CUDAGraph()
        for generator in generators:    # the default generator is registered anyway: each replay advances its state
            graph.register_generator_state(generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results = run(inputs)
        return results, graph.replay


@dataclasses.dataclass
class Recording:
    """One recorded graph.

    ``places`` has the fixed place of each input that is copied; ``addresses`` has the required address of the others.
    ``of_inputs`` has, for a result that is a view of an input in place: which input, sizes, strides, offset.
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
        """Whether all results of the last replay have been released."""
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
        return result.clone() if i < visible else result.detach()   # a separate tensor, so that its references count


class Recorded:
    """The function of a module, which is launched a few times, then recorded and replayed.

    Arguments:
        run: takes the list of inputs, which it may empty.
        visible: the number of results, from the first, that the program sees. The others are autograd's.
        generators: random generators, besides the default ones, that the module draws from.
        after: the number of calls that are launched first; the last of them shows which inputs move. A backward graph
            must wait until the forward graph is recorded.
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
        except Exception as error:      # an operator that a CUDA graph does not support
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


class RecordedBySizes:
    """A module for all sizes: a recording is of one set of sizes, so each set has its own.

    Arguments:
        run: launches the kernels, for sets of sizes beyond ``LIMIT``.
        recorded: makes a function that records.
    """

    LIMIT = 16      # each recording has memory of its own

    def __init__(self, run: Run, recorded: Callable[[], Run]) -> None:
        self.launch, self.recorded = run, recorded
        self.known: dict[tuple, Run] = {}

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        sizes = tuple((v.shape, v.stride()) if isinstance(v, torch.Tensor) else v for v in inputs)
        if sizes not in self.known:
            if len(self.known) == self.LIMIT:
                return self.launch(inputs)
            self.known[sizes] = self.recorded()
        return self.known[sizes](inputs)


def _view_of(result: Any, inputs: dict[int, torch.Tensor]) -> tuple | None:
    """The input that a result is a view of, and the view."""
    if not isinstance(result, torch.Tensor):
        return None
    for i, tensor in inputs.items():
        if tensor.untyped_storage().data_ptr() == result.untyped_storage().data_ptr() and tensor.dtype == result.dtype:
            offset = result.storage_offset() - tensor.storage_offset()
            return i, tuple(result.shape), tuple(result.stride()), offset
    return None
