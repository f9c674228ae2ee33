"""The schedule: which operators share a kernel, in what order the steps run, and what that costs.

``schedule`` fuses the kernels of a program two at a time, starting with the pair that saves most memory traffic, until
no fitting pair is left. Then values that are cheaper to recompute than to store are computed where they are read.
"""
from __future__ import annotations

import dataclasses
import heapq
import logging
import math
from collections import defaultdict
from collections.abc import Iterable
from graphlib import TopologicalSorter

from sot.graph.kernels import index as ix
from sot.graph.kernels.fusion import STATEMENTS, at, fused, moved
from sot.graph.kernels.ir import REDUCTIONS, Builder, Kernel, pruned, renumbered
from sot.graph.kernels.memory import planned
from sot.graph.kernels.ops import BYTES, SCANS
from sot.graph.kernels.parallel.grouping import grouped
from sot.graph.kernels.parallel.layout import fitted, tiles
from sot.graph.kernels.parallel.row_loops import with_row_loops
from sot.graph.kernels.parallel.splitting import split
from sot.graph.kernels.program import Buffer, Extern, Program, Step, allocates, effects_of, has_effect, product
from sot.graph.kernels.sizes import typical
from sot.graph.kernels.verifier import VERIFIES, check, verify_memory
from sot.graph.lowering.driver import axes_of

PASSES = logging.getLogger("sot.passes")
RECOMPUTED = 24      # greatest number of statements that are recomputed instead of stored
INLINED = 40         # statements, and
OF_PLACES = 64       # statements, if they read no memory: computed from places alone, and
ONCE = 128           # statements, for one or two readers that compute few elements more than once, and
SOURCES = 4          # greatest number of buffers that a value reads if it is computed at each reader


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a program: launches, calls, bytes read and written (each buffer of a step once), and the greatest
    number of bytes that are allocated at a time.
    """

    kernels: int
    externs: int
    bytes: int
    peak: int = 0

    def __str__(self) -> str:
        return (f"{self.kernels} kernels, {self.externs} calls of operators, {self.bytes:,} bytes moved, "
                f"{self.peak:,} allocated at most")


def cost(program: Program) -> Cost:
    externs = [s for s in program.steps if isinstance(s, Extern)]
    total = sum(map(kernel_bytes, program.kernels())) + sum(extern_bytes(s, program.buffers) for s in externs)
    calls = sum(not allocates(step) for step in externs)
    return Cost(len(program.steps) - len(externs), calls, total, planned(program).peak)


def kernel_bytes(kernel: Kernel) -> int:
    return sum(touched_bytes(kernel, name) for name in kernel.read()) + sum(
        touched_bytes(kernel, name) for name in kernel.written())


def touched_bytes(kernel: Kernel, buffer: str) -> int:
    """The bytes of a buffer that a kernel reads or writes: the places that it accesses, at most the size of the
    buffer.
    """
    places = {at(s) for s in kernel.loads() if s.buffer == buffer} | {
        s.index for s in kernel.stores if s.buffer == buffer}
    ranges = {axis: typical(size) for axis, size in kernel.ranges.items()}
    everywhere = math.prod(ranges.values())
    count = sum(math.prod(ranges[v] for v in p.names) if p.names <= ranges.keys() else everywhere for p in places)
    memory = kernel.buffers[buffer]
    return min(count, typical(memory.size)) * BYTES[memory.dtype]


def extern_bytes(step: Extern, buffers: dict[str, Buffer]) -> int:
    if is_view(step) or allocates(step):
        return 0
    whole = (step.read() | step.written()) - step.changed()
    part = typical(product(step.into.shape)) * step.into.dtype.itemsize if step.into else 0
    return part + sum(typical(buffers[name].nbytes) for name in whole)


def is_view(step: Extern) -> bool:
    schema = getattr(step.target, "_schema", None)
    return schema is not None and not schema.is_mutable and any(r.alias_info for r in schema.returns)


def schedule(program: Program) -> Program:
    """The same program with fewer kernels."""
    plan, effects = Plan(program), effects_of(program)
    check(program, effects, "lowering")
    for step in (plan.inline, plan.fuse, plan.recompute, plan.fuse):
        step()
        if VERIFIES:
            check(plan.program(), effects, step.__name__)
    done = plan.program()
    for change in (fitted, with_row_loops, split, tiles):
        done = change(done)
        check(done, effects, change.__name__)
    done = grouped(done)
    check(done, effects, "grouped")
    if VERIFIES:
        verify_memory(done)
    if PASSES.isEnabledFor(logging.DEBUG):
        PASSES.debug("scheduled: %s\n%s", cost(done), done)
    return done


class Plan:
    """Steps by number, and the buffers that they access."""

    def __init__(self, program: Program) -> None:
        self.lowered = program
        self.kept = program.kept()
        self.given = frozenset(program.inputs) | program.constants.keys()
        self.steps: dict[int, Step] = dict(enumerate(program.steps))
        self.position: dict[int, int] = {i: i for i in self.steps}
        self.into: dict[int, int] = {}       # steps that are now part of another step
        self.refused: set[tuple[int, int]] = set()
        self.readers: dict[str, set[int]] = defaultdict(set)
        self.writers: dict[str, set[int]] = defaultdict(set)
        self.alias: dict[str, set[str]] = {}
        for buffer in program.buffers.values():
            self.alias[buffer.name] = {buffer.name}.union(*(self.alias[a] for a in buffer.alias))
        self.changers: dict[str, list[int]] = defaultdict(list)     # of each buffer, in order
        for i, step in self.steps.items():
            for name in step.changed():
                self.changers[name].append(i)
        effects = [i for i, step in self.steps.items() if has_effect(step)]
        self.effect_before = dict(zip(effects[1:], effects, strict=False))
        for i, step in self.steps.items():
            self._note(i, step)
        self._drop_unused()

    def kernel(self, number: int) -> Kernel:
        """A step that is known to be a kernel."""
        step = self.steps[number]
        assert isinstance(step, Kernel)
        return step

    def are_kernels(self, numbers: Iterable[int]) -> bool:
        return all(isinstance(self.steps[n], Kernel) for n in numbers)

    def _note(self, number: int, step: Step) -> None:
        for name in step.read():
            for one in self.alias[name]:
                self.readers[one].add(number)
        for name in step.written():
            self.writers[name].add(number)

    def _forget(self, number: int) -> None:
        for users in (self.readers, self.writers):
            for numbers in users.values():
                numbers.discard(number)

    def _drop_unused(self) -> None:
        """Drop kernels without readers of their results, and unneeded stores."""
        for i in sorted(self.steps, reverse=True):
            step = self.steps[i]
            if isinstance(step, Kernel):
                self._trim(i, step)
            elif allocates(step) and not any(self.readers[n] or n in self.kept for n in step.written()):
                self._forget(i)
                del self.steps[i]

    def _trim(self, number: int, kernel: Kernel) -> None:
        needed = tuple(s for s in kernel.stores if s.buffer in self.kept or self.readers[s.buffer] - {number})
        if len(needed) == len(kernel.stores):
            return
        self._forget(number)
        if not needed:
            del self.steps[number]
            return
        self.steps[number] = renumbered(dataclasses.replace(
            kernel, body=pruned(kernel.body, needed), stores=needed))
        self._note(number, self.steps[number])

    # ---- order
    def before(self, number: int) -> set[int]:
        """The steps that must have run: those that write what it reads, or read the input that it overwrites. For a
        step with effects, also the previous one.
        """
        step = self.steps[number]
        found = {self.effect_before[number]} if number in self.effect_before else set()
        for name in step.read():
            for one in self.alias[name] - self.given:
                found |= self.writers[one] - self._later_changers(number, one)
        for name in step.written() & self.given:
            found |= self.readers[name]
        return found - {number}

    def _later_changers(self, number: int, name: str) -> set[int]:
        """For a step that changes some places of a buffer: itself and the steps that do so after it."""
        order = [self._now(n) for n in self.changers[name]] if name in self.changers else []
        return set(order[order.index(number):]) if number in order else set()

    def depends(self, later: int, earlier: int, directly: bool = True) -> bool:
        """Whether ``earlier`` must run before ``later``. Without ``directly``: because of a step in between."""
        stack = [s for s in self.before(later) if directly or s != earlier]
        seen: set[int] = set()
        while stack:
            step = stack.pop()
            if step == earlier:
                return True
            if step not in seen and step in self.steps:
                seen.add(step)
                stack.extend(self.before(step))
        return False

    def program(self) -> Program:
        """The program as it is now."""
        return dataclasses.replace(self.lowered, steps=self.ordered())

    def ordered(self) -> list[Step]:
        """The steps in an order in which each follows those that it needs, and otherwise unchanged."""
        sorter = TopologicalSorter({i: self.before(i) for i in self.steps})
        sorter.prepare()
        ready: list[tuple[int, int]] = []
        found: list[Step] = []
        while sorter.is_active():
            for i in sorter.get_ready():
                heapq.heappush(ready, (self.position[i], i))
            _, first = heapq.heappop(ready)
            found.append(self.steps[first])
            sorter.done(first)
        return found

    # ---- fusion
    def fuse(self) -> None:
        while self._round():
            pass

    def _round(self) -> bool:
        changed = False
        for _, a, b in sorted(self._pairs(), key=lambda pair: (-pair[0], pair[1], pair[2])):
            changed |= self._try(self._now(a), self._now(b))
        return changed

    def _now(self, number: int) -> int:
        while number in self.into:
            number = self.into[number]
        return number

    def _pairs(self) -> Iterable[tuple[int, int, int]]:
        """Pairs of kernels that access the same buffer, with the bytes that fusing them would save."""
        saved: dict[tuple[int, int], int] = defaultdict(int)
        for name in set(self.readers) | set(self.writers):
            users = sorted(n for n in self.readers[name] | self.writers[name] if isinstance(self.steps.get(n), Kernel))
            if len(users) > 32:
                users = users[:32]
            for i, a in enumerate(users):
                for b in users[i + 1:]:
                    saved[a, b] += touched_bytes(self.kernel(b), name) if name in self.kernel(b).buffers else 0
        return [(size, a, b) for (a, b), size in saved.items() if size and (a, b) not in self.refused]

    def _try(self, a: int, b: int) -> bool:
        if a == b or a not in self.steps or b not in self.steps:
            return False
        if not self.are_kernels((a, b)):
            return False
        if self.depends(a, b):
            a, b = b, a
        if (a, b) in self.refused or self.depends(b, a, directly=False):
            return False
        if self._merged(a, b) or (not self.depends(b, a) and self._merged(b, a)):
            return True
        self.refused.add((a, b))
        return False

    def _merged(self, a: int, b: int) -> bool:
        """Fuse step ``a`` into step ``b``, if possible."""
        first, second = self.kernel(a), self.kernel(b)
        private = frozenset(n for n in first.written() if n not in self.kept and self.readers[n] <= {a, b})
        whole = fused(first, second, private)
        if whole is None:
            return False
        self._forget(a)
        self._forget(b)
        del self.steps[a]
        self.into[a] = b
        self.steps[b] = whole
        self._note(b, whole)
        return True

    # ---- computing at the readers
    def inline(self) -> None:
        """Make elementwise kernels part of their readers, if these are few or the kernel reads little."""
        for number in sorted(self.steps, key=lambda i: self.position[i]):
            step = self.steps.get(number)
            if isinstance(step, Kernel) and not step.reduced and self._is_inlined(number, step):
                for user in list(self.readers[step.stores[0].buffer]):
                    self._replace(user, substituted(self.kernel(user), step))
                self._replace(number, None)

    def _is_inlined(self, number: int, kernel: Kernel) -> bool:
        buffer = kernel.stores[0].buffer
        users = self.readers[buffer]
        if buffer in self.kept or not users or len(self.writers[buffer]) > 1 or not self.are_kernels(users):
            return False
        cheap = INLINED if kernel.read() else OF_PLACES
        if len(kernel.body) > (ONCE if self._is_computed_once(kernel, users) else cheap):
            return False
        if any(name in self.given and self.writers[name] for name in kernel.read()):
            return False
        again = len(users) > 1 or any(widens(kernel, self.steps[u]) for u in users)
        return len(kernel.read()) <= SOURCES if again else True

    def _is_computed_once(self, kernel: Kernel, users: set[int]) -> bool:
        """Whether one or two readers have room for the kernel, and at most twice its points. Two that become one kernel
        share its statements.
        """
        readers = [self.kernel(user) for user in users]
        return len(readers) <= 2 and all(len(r.body) + len(kernel.body) <= STATEMENTS and typical(
            r.row_count * r.width) <= 2 * typical(kernel.row_count) for r in readers)

    # ---- recomputation
    def recompute(self) -> None:
        """Do not store a buffer if all its readers can compute it from existing memory with less traffic."""
        for number in sorted(self.steps, key=lambda i: -self.position[i]):
            step = self.steps.get(number)
            if isinstance(step, Kernel):
                for buffer in [s.buffer for s in step.stores]:
                    self._recompute(number, buffer)

    def _recompute(self, number: int, buffer: str) -> None:
        kernel = self.kernel(number)
        store = next(s for s in kernel.stores if s.buffer == buffer)
        users = self.readers[store.buffer] - {number}
        if store.buffer in self.kept or not users or not self.are_kernels(users) or len(self.writers[buffer]) > 1:
            return
        cone = pruned(kernel.body, (store,))
        if len(cone) > RECOMPUTED or any(s.op in REDUCTIONS or s.op in SCANS for s in cone):
            return
        axes = tuple((v, n) for v, n in kernel.rows + kernel.reduced if v in store.index.names)
        alone = renumbered(dataclasses.replace(kernel, rows=axes, reduced=(), body=cone, stores=(store,)))
        if any(name in self.given and self.writers[name] for name in alone.read()):
            return
        others = tuple(s for s in kernel.stores if s != store)
        trimmed = renumbered(dataclasses.replace(kernel, body=pruned(kernel.body, others), stores=others))
        changed = {u: substituted(self.kernel(u), alone) for u in users}
        before = kernel_bytes(kernel) + sum(kernel_bytes(self.kernel(u)) for u in users)
        after = (kernel_bytes(trimmed) if others else 0) + sum(kernel_bytes(k) for k in changed.values())
        if after >= before or any(len(k.body) > 256 for k in changed.values()):
            return
        self._replace(number, trimmed if others else None)
        for user, new in changed.items():
            self._replace(user, new)

    def _replace(self, number: int, kernel: Kernel | None) -> None:
        self._forget(number)
        self.refused = {pair for pair in self.refused if number not in pair}
        if kernel is None:
            del self.steps[number]
        else:
            self.steps[number] = kernel
            self._note(number, kernel)


def widens(kernel: Kernel, user: Step) -> bool:
    """Whether the reader would compute elements more than once."""
    return isinstance(user, Kernel) and typical(user.row_count * user.width) > typical(kernel.row_count)


def substituted(kernel: Kernel, producer: Kernel) -> Kernel:
    """``kernel`` with the computation in place of every load of a buffer that ``producer`` stores."""
    store = producer.stores[0]
    builder = Builder(kernel.ranges)
    names: dict[str, str] = {}
    for stmt in kernel.body:
        if stmt.op == "load" and stmt.buffer == store.buffer:
            place = ix.substitute(at(stmt), {n: ix.index(names[n]) for n in at(stmt).names if n in names},
                                  builder.ranges)
            mask = names[stmt.args[0]] if stmt.args else None
            value = computed(builder, producer, place, mask)
            if mask is not None:
                value = builder.emit("where", mask, value, builder.const(stmt.value, stmt.dtype))
            names[stmt.name] = value
        else:
            names |= builder.copy_one(stmt, names)
    stores = tuple(moved(s, {}, names, builder.ranges) for s in kernel.stores)
    return renumbered(dataclasses.replace(kernel, body=pruned(builder.body, stores), stores=stores,
                                          buffers={**producer.buffers, **kernel.buffers}))


def computed(builder: Builder, producer: Kernel, place: ix.Index, mask: str | None) -> str:
    """The value that ``producer`` stores at a place, with its loads only where the mask holds."""
    axes = axes_of(producer, place, builder.ranges)
    names: dict[str, str] = {}
    for stmt in producer.body:
        names |= builder.copy_one(stmt, names, axes, mask)
    return names[producer.stores[0].value]
