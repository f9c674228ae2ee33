"""``mode="reduce-overhead"``: a CUDA graph records the launches of a module and starts them all at once.

A CUDA graph accesses the same memory at every replay.

- Inputs that do not move (parameters, tensors that the forward graph keeps for the backward one) are read and changed
  where they are. Inputs whose address changes from call to call are copied to fixed places before a replay, and copied
  back afterwards if the graph changes them.
- Results are handed out in the memory of the graph. So there is no replay while one of them is held: the kernels are
  launched one by one, and from then on that result is copied out, because it outlives the step. Results that autograd
  keeps are never copied.

Replays on different streams wait for each other. A result that another stream uses must be held until it has been used
there: ``Tensor.record_stream`` is not seen.

Each graph has memory of its own. In one pool, a graph that is recorded later would get the memory of the intermediate
values of an earlier one, for results too. A replay of the earlier graph would then overwrite these results while they
are held. A program may call its graphs in any order, so every replay would have to check the results of all graphs.
"""
from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Protocol

import torch

from sot.backends.triton.runtime import changing, view
from sot.torch_compat.tensors import StorageUsers, storage_id, watch

BACKENDS = logging.getLogger("sot.backends")
ATTEMPTS = 4        # greatest number of recordings; an input that has moved is copied in the next one
PATIENCE = 4        # calls that wait for a result to be released, before its graph is recorded again

Run = Callable[[list[Any]], Sequence[Any]]
address = torch.Tensor.data_ptr


class Graphs(Protocol):
    """The recorder: ``Cuda``, or a replacement in tests."""

    def records(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is in memory that the graph can access."""

    def record(self, run: Run, inputs: list[Any], generators: Sequence[Any]) -> tuple[Sequence[Any], Callable]:
        """Record the launches of ``run`` with these inputs, without running them. Returns its results, whose elements
        are not defined yet, and a function that replays it.
        """

    def follow(self) -> None:
        """Make the current stream wait for the last replay, if that was on another stream."""


class Cuda:
    """torch's CUDA graphs: one recorder a graph.

    Arguments:
        device: the GPU that all kernels run on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.last: torch.cuda.Stream | None = None

    def records(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda and tensor.device == self.device

    def record(self, run: Run, inputs: list[Any], generators: Sequence[Any]) -> tuple[Sequence[Any], Callable]:
        graph = torch.cuda.CUDAGraph()
        for generator in generators:    # the default generator is registered anyway: each replay advances its state
            graph.register_generator_state(generator)
        with torch.cuda.device(self.device):
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=_recording_stream(self.device), capture_error_mode="thread_local"):
                results = run(inputs)
        return results, graph.replay

    def follow(self) -> None:
        stream = torch.cuda.current_stream(self.device)
        if self.last is not None and self.last != stream:
            stream.wait_stream(self.last)
        self.last = stream


@cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class CannotRecord(Exception):
    """The results of the graph cannot be handed out as those of its module."""


class Memory:
    """The memory of one or more results, which only the recording holds between replays.

    Arguments:
        results: the distinct results that use it, by position; some positions may have the same tensor.
    """

    def __init__(self, results: dict[int, torch.Tensor]) -> None:
        self.positions = list(results)
        first, *others = {id(r): r for r in results.values()}.values()
        self.views: list[tuple[int, tuple]] = []
        self.whole = first.data         # without the tensor that it is a view of
        if others or torch.empty_like(first).stride() != first.stride():    # which a clone would not keep
            if any(not _is_view(other, first) for other in others):
                raise CannotRecord("results share memory, and are of different types")
            count = first.untyped_storage().nbytes() // first.element_size()
            self.whole = first.data.as_strided((count,), (1,), 0).data
            self.views = [(i, (r.shape, r.stride(), r.storage_offset())) for i, r in results.items()]

    def is_single(self) -> bool:
        """Whether it is of one result, which is given as a clone or as ``data``: a tensor that counts as a user."""
        return len(self.positions) == 1 and not self.views

    def give(self, results: list[Any], copied: bool) -> None:
        """Set the results that use it."""
        given = self.whole.clone() if copied else self.whole.data
        for i in self.positions:
            results[i] = given
        for i, (shape, strides, offset) in self.views:     # they count changes together, as the module's results do
            results[i] = given.as_strided(shape, strides, offset).detach()


class Recording:
    """One recorded graph.

    Arguments:
        graphs: the recorder.
        run: what it records.
        inputs: the inputs of a call.
        moving: the inputs that are copied to fixed places.
        changed: the inputs that the graph changes.
        constants: tensors that ``run`` has, besides its inputs.
    Raises:
        CannotRecord: a result cannot be handed out as that of ``run``.
    """

    def __init__(self, graphs: Graphs, run: Run, inputs: Sequence[Any], moving: set[int], changed: Sequence[int],
                 constants: Sequence[torch.Tensor], generators: Sequence[Any]) -> None:
        self.graphs, self.constants = graphs, constants
        self.places = {i: _place(inputs[i]) for i in sorted(moving)}
        self.back = [i for i in changed if i in moving]
        self.in_place = [i for i in changed if i not in moving]
        self.inference = torch.is_inference_mode_enabled()
        given = [self.places.get(i, v) for i, v in enumerate(inputs)]
        results, self.replay = graphs.record(run, list(given), generators)
        fixed = [i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and i not in moving]
        self.fixed = _picker(fixed)
        self.addresses = [address(inputs[i]) for i in fixed]
        self._take(list(results), [*given, *constants])

    def _take(self, results: list[Any], sources: Sequence[Any]) -> None:
        """Find out how to hand out each result."""
        self.values = list(results)                     # numbers and None
        self.same: list[tuple[int, int]] = []           # positions of results that are inputs or constants themselves
        self.views: list[tuple[int, int, tuple]] = []   # and of their views
        known = {storage_id(s): i for i, s in reversed([*enumerate(sources)]) if isinstance(s, torch.Tensor)}
        own: dict[int, dict[int, torch.Tensor]] = {}
        for i, result in enumerate(results):
            if not isinstance(result, torch.Tensor):
                continue
            self.values[i] = None
            source = next((j for j, s in enumerate(sources) if s is result), known.get(storage_id(result)))
            if source is None:
                if not self.graphs.records(result):
                    raise CannotRecord(f"a result is on {result.device}")
                own.setdefault(storage_id(result), {})[i] = result
            elif result is sources[source]:
                self.same.append((i, source))
            elif _is_view(result, sources[source]):
                offset = result.storage_offset() - sources[source].storage_offset()
                self.views.append((i, source, (result.shape, result.stride(), offset)))
            else:
                raise CannotRecord("a result is a view of an input, of another type")
        self.own = [Memory(some) for some in own.values()]
        self.single = [(one.positions[0], one.whole) for one in self.own if one.is_single()]     # nearly all
        self.several = [one for one in self.own if not one.is_single()]
        self.wholes = [one.whole for one in self.own]
        self.at = [address(one) for one in self.wholes]
        self.users = StorageUsers(self.wholes)
        self.free = self.users.without_others()

    def fits(self, inputs: Sequence[Any]) -> bool:
        return (list(map(address, self.fixed(inputs))) == self.addresses
                and torch.is_inference_mode_enabled() == self.inference)

    def is_ready(self) -> bool:
        """Whether all results of the last replay have been released, and are where they were."""
        return self.users.counts() == self.free and list(map(address, self.wholes)) == self.at

    def held(self) -> list[Memory]:
        """The memory of results that have not been released."""
        return [self.own[i] for i in self.users.others()]

    def moved(self) -> set[int]:
        """The results whose memory is elsewhere: a program may have resized a storage."""
        return {i for one, at in zip(self.own, self.at, strict=True) if address(one.whole) != at
                for i in one.positions}

    def run(self, inputs: Sequence[Any], copied: set[int], recorded: bool = False) -> list[Any]:
        """Replay the graph.

        Arguments:
            copied: positions of results that outlive the step.
            recorded: whether it has been recorded in this call, which has copied inputs and counted their changes.
        """
        self.graphs.follow()
        with torch.no_grad():
            for i, place in self.places.items() if not recorded else ():
                _bare(place).copy_(_bare(inputs[i]))
            self.replay()
            for i in self.back:
                inputs[i].copy_(self.places[i])
        if self.in_place and not recorded:
            changing(*[inputs[i] for i in self.in_place])
        results = self.values.copy()
        for i, whole in self.single:
            results[i] = whole.clone() if i in copied else whole.data
        for one in self.several:
            one.give(results, not copied.isdisjoint(one.positions))
        sources = [*inputs, *self.constants] if self.constants else inputs
        for i, source in self.same:
            results[i] = sources[source]
        for i, source, where in self.views:
            results[i] = view(sources[source], *where)
        return results


class Recorded:
    """The function of a module, which is launched a few times, then recorded and replayed.

    Arguments:
        run: takes the list of inputs, which it may empty.
        visible: the number of results, from the first, that the program sees. The others are autograd's.
        graphs: the recorder.
        changed: the inputs that the module changes.
        constants: tensors that the module has, besides its inputs.
        generators: random generators, besides the default ones, that the module draws from.
        after: the number of calls that are launched first; the last of them shows which inputs move, and which results
            outlive the step. A backward graph must wait until the forward graph is recorded.
    """

    def __init__(self, run: Run, visible: int, graphs: Graphs, changed: Sequence[int] = (),
                 constants: Sequence[torch.Tensor] = (), generators: Sequence[Any] = (), after: int = 1) -> None:
        self.launch, self.visible, self.graphs = run, visible, graphs
        self.changed, self.constants, self.generators = changed, constants, generators
        self.after = after
        self.seen: list[int | None] | None = None       # addresses of inputs at the last call, if it was launched
        self.watched: dict[int, Callable[[], bool]] = {}
        self.moving: set[int] = set()
        self.outlive: set[int] = set()                  # positions of results
        self.recording: Recording | None = None
        self.attempts = self.waited = 0
        self.busy = threading.Lock()

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if not self.busy.acquire(blocking=False):       # another thread's call, whose results are not held yet
            return self.launch(inputs)
        try:
            recording = self.recording
            if recording is None or not recording.fits(inputs):
                return self._without(inputs)
            self.seen = None
            if recording.is_ready():
                self.waited = 0
                return recording.run(inputs, self.outlive)
            return self._not_ready(recording, inputs)
        finally:
            self.busy.release()

    def _without(self, inputs: list[Any]) -> Sequence[Any]:
        """A call that no recording fits."""
        tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
        if self.attempts >= ATTEMPTS or not all(map(self.graphs.records, tensors)):
            return self.launch(inputs)
        before, self.seen = self.seen, [address(v) if isinstance(v, torch.Tensor) else None for v in inputs]
        self.outlive |= {i for i, is_held in self.watched.items() if is_held()}
        if self.after > 0:
            self.after -= 1
            return self._watch(self.launch(inputs))
        if before is None:      # the first after replays: the next call shows whether inputs move
            return self.launch(inputs)
        self.moving |= {i for i, (old, new) in enumerate(zip(before, self.seen, strict=True)) if old != new}
        return self._record(inputs)

    def _watch(self, results: Sequence[Any]) -> Sequence[Any]:
        self.watched = {i: watch(r) for i, r in enumerate(results[:self.visible])
                        if isinstance(r, torch.Tensor)}
        return results

    def _not_ready(self, recording: Recording, inputs: list[Any]) -> Sequence[Any]:
        """A call that may not overwrite the results of the last replay."""
        if moved := recording.moved():
            self.outlive |= moved
            return self._again(inputs)
        held = {i for one in recording.held() if min(one.positions) < self.visible for i in one.positions}
        if held - self.outlive:
            self.outlive |= held
        elif held:      # since before they were known to outlive the step
            self.waited += 1
            if self.waited > PATIENCE:
                return self._again(inputs)
        return self.launch(inputs)

    def _again(self, inputs: list[Any]) -> Sequence[Any]:
        """Record again, because the memory of a result cannot be used any more."""
        self.recording = None
        return self._record(inputs) if self.attempts < ATTEMPTS else self.launch(inputs)

    def _record(self, inputs: list[Any]) -> Sequence[Any]:
        self.attempts += 1
        self.recording, self.seen, self.watched, self.waited = None, None, {}, 0
        try:
            made = Recording(self.graphs, self.launch, inputs, self.moving, self.changed, self.constants,
                             self.generators)
            if made.held():
                gc.collect()
            if made.held():
                raise CannotRecord("something else uses the memory of a result")
        except Exception as error:      # such as an operator that a CUDA graph does not support
            BACKENDS.debug("reduce-overhead: launched one by one, because recording failed: %s", error)
            self.attempts = ATTEMPTS
            return self.launch(inputs)
        self.recording = made
        return made.run(inputs, self.outlive, recorded=True)


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


def _is_view(result: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether ``as_strided`` makes one of the other, which has the same memory."""
    return (result.dtype, result.is_conj(), result.is_neg()) == (source.dtype, source.is_conj(), source.is_neg())


def _place(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor with the same strides."""
    place = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    with torch.no_grad():
        _bare(place).copy_(_bare(tensor))
    return place


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without repetitions, which torch refuses to write."""
    if 0 in tensor.stride():
        for dim, stride in enumerate(tensor.stride()):
            tensor = tensor.narrow(dim, 0, 1) if stride == 0 and tensor.shape[dim] > 1 else tensor
    return tensor


def _picker(which: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    return itemgetter(*which) if len(which) > 1 else lambda values: [values[i] for i in which]
