"""Fuses two kernels: finds a common index space, and the values that no longer need memory.

Two kernels correspond through a buffer that both access. Its strides show which axes are the same. An axis of one may
be several axes of the other, so both are cut into "digits". One kernel may be a reduction, with the other computed
over its rows. A correspondence is only a proposal. It is accepted if every value that the second kernel reads from the
first is read at the place where it was stored.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder, Kernel, Stmt, Store, points, pruned, renumbered
from sot.graph.kernels.sizes import Number, divided, typical

STATEMENTS = 256     # limit for a kernel; beyond it, registers spill
BUFFERS = 40


@dataclasses.dataclass
class Digit:
    """A part of an axis of one kernel that is a part of an axis of another. Either may be missing."""

    size: Number
    first: tuple[str, Number] | None = None     # axis and weight: the axis is the sum of digit * weight
    second: tuple[str, Number] | None = None


@dataclasses.dataclass
class Space:
    """The axes of a fused kernel, and the old axes expressed by them."""

    rows: tuple[tuple[str, Number], ...]
    reduced: tuple[tuple[str, Number], ...]
    first: dict[str, Index]
    second: dict[str, Index]


Term = tuple[Number, str, Number]     # coefficient, axis, size


def fused(a: Kernel, b: Kernel, dropped: frozenset[str]) -> Kernel | None:
    """``a`` followed by ``b`` as one kernel, or None.

    Arguments:
        dropped: buffers that ``a`` stores and only ``b`` reads. They are not stored any more.
    """
    if len(a.body) + len(b.body) > STATEMENTS or len(a.buffers.keys() | b.buffers.keys()) > BUFFERS:
        return None
    if a.changed() & b.buffers.keys() or b.changed() & a.buffers.keys():
        return None     # other programs of the kernel may still have to store there
    tried: list[Space] = []
    for space in spaces(a, b):
        if space not in tried:
            tried.append(space)
            if found := _in_space(a, b, space, dropped):
                return found
    return None


def _in_space(a: Kernel, b: Kernel, space: Space, dropped: frozenset[str]) -> Kernel | None:
    if not (_in_order(a, space.first, space) and _in_order(b, space.second, space)):
        return None
    builder = Builder(dict(space.rows + space.reduced))
    names = builder.copy(a.body, space.first, {})
    stores = [moved(s, space.first, names, builder.ranges) for s in a.stores]
    given = {(s.buffer, s.index): s.value for s in stores}
    count = len(builder.body)
    names = builder.copy(b.body, space.second, given)
    written = a.written()
    if any(s.op == "load" and s.buffer in written for s in builder.body[count:]):
        return None
    if _overwritten_too_early(a, b, space) or _read_again(a, b, space):
        return None
    stores = [s for s in stores if s.buffer not in dropped]
    stores += [moved(s, space.second, names, builder.ranges) for s in b.stores]
    buffers = {**a.buffers, **b.buffers}
    whole = Kernel(f"{a.name}_{b.name}", space.rows, space.reduced, pruned(builder.body, stores), tuple(stores),
                   buffers)
    if _adds_less_often(whole, a, space.first) or _adds_less_often(whole, b, space.second):
        return None
    return renumbered(whole)


def _adds_less_often(whole: Kernel, part: Kernel, axes: dict[str, Index]) -> bool:
    """Whether the part adds at each of its rows, some of which are points now, but adds the same number to the same
    place at all of these: then the whole would add it once.
    """
    varying = points(whole)
    columns = {name for name, _ in whole.reduced}
    return any(axes[name].names & columns for name, _ in part.rows) and any(
        s.how == "add" and s.buffer in part.written() and not varying & {s.value, *s.index.names} for s in whole.stores)


def _in_order(kernel: Kernel, axes: dict[str, Index], space: Space) -> bool:
    """Whether the axis of a scan is a single axis of the space."""
    return not kernel.is_ordered or len(space.reduced) == 1 and axes[kernel.reduced[0][0]] == ix.index(
        space.reduced[0][0])


def _overwritten_too_early(a: Kernel, b: Kernel, space: Space) -> bool:
    """Whether one stores to places that the other reads later. (Inputs may be changed in place.)"""
    ranges = dict(space.rows + space.reduced)
    for store in b.stores:
        place = ix.substitute(store.index, space.second, ranges)
        for load in a.loads():
            if load.buffer == store.buffer and ix.substitute(at(load), space.first, ranges) != place:
                return True
    return False


def _read_again(a: Kernel, b: Kernel, space: Space) -> bool:
    """Whether one pass over the columns might read what an earlier one has stored. (Inputs may be changed in
    place.)
    """
    columns, ranges = {v for v, _ in space.reduced}, dict(space.rows + space.reduced)
    read = {load.buffer for load in (*a.loads(), *b.loads())}
    return any(s.buffer in read and ix.substitute(s.index, axes, ranges).names & columns
               for kernel, axes in ((a, space.first), (b, space.second)) for s in kernel.stores
               if not (kernel is a and s.buffer in b.read()))


def at(stmt: Stmt) -> Index:
    assert stmt.index is not None
    return stmt.index


def moved(store: Store, axes: dict[str, Index], names: dict[str, str], ranges: ix.Ranges) -> Store:
    values = {**axes, **{n: ix.index(names[n]) for n in store.index.names if n in names}}
    return Store(store.buffer, ix.substitute(store.index, values, ranges), names[store.value], store.how)


# ---- proposing spaces ------------------------------------------------------------------------------------
def spaces(a: Kernel, b: Kernel) -> Iterator[Space]:
    for first, second in shared(a, b):
        if first.const == second.const:
            space = corresponding(a, b, first, second)
            if space is not None:
                yield space


def shared(a: Kernel, b: Kernel) -> Iterator[tuple[Index, Index]]:
    """Pairs of places where both access a buffer: first buffers from one to the other, then the largest."""
    read: dict[str, list[Index]] = {}
    for load in b.loads():
        read.setdefault(load.buffer, []).append(at(load))
    for store in a.stores:
        for place in read.get(store.buffer, ()):
            yield store.index, place
    for load in sorted(a.loads(), key=lambda s: -typical(a.buffers[s.buffer].size)):
        for place in read.get(load.buffer, ()):
            yield at(load), place


def corresponding(a: Kernel, b: Kernel, first: Index, second: Index) -> Space | None:
    terms_a, terms_b = terms_of(first, a), terms_of(second, b)
    if terms_a is None or terms_b is None:
        return None
    digits = aligned(terms_a, terms_b)
    if digits is None:
        return None
    left_a, left_b = unused(a, first), unused(b, second)
    if left_a and left_b:
        rest = aligned(row_major(left_a), row_major(left_b))
        if rest is None:
            return None
        digits += rest
    elif left_a or left_b:
        owner, left, other = (a, left_a, b) if left_a else (b, left_b, a)
        if other.reduced or left != list(owner.reduced):
            return None
        digits += [Digit(n, (v, 1), None) if left_a else Digit(n, None, (v, 1)) for v, n in left]
    return assembled(a, b, digits)


def terms_of(place: Index, kernel: Kernel) -> list[Term] | None:
    """Coefficient, axis and size of each term, the smallest first; None if it is not a sum of axes."""
    sizes = kernel.ranges
    found: list[Term] = []
    for atom, coefficient in place.terms:
        if not isinstance(atom, str) or atom not in sizes or coefficient < 0:
            return None
        found.append((coefficient, atom, sizes[atom]))
    return sorted(found)


def unused(kernel: Kernel, place: Index) -> list[tuple[str, Number]]:
    return [(v, n) for v, n in kernel.rows + kernel.reduced if v not in place.names]


def row_major(axes: list[tuple[str, Number]]) -> list[Term]:
    terms, stride = [], 1
    for name, size in reversed(axes):
        terms.append((stride, name, size))
        stride *= size
    return terms


Part = tuple[Number, str, Number, Number]   # a term, and the weight of its smallest digit in its axis


def aligned(terms_a: list[Term], terms_b: list[Term]) -> list[Digit] | None:
    """Both lists of strides cut into the same digits, the smallest stride first."""
    digits: list[Digit] = []
    left, right = [(*t, 1) for t in terms_a], [(*t, 1) for t in terms_b]
    while left and right:
        (stride, var, size, weight), (stride_b, var_b, size_b, weight_b) = left[0], right[0]
        part = size_b if divided(size, size_b) is not None else size
        if stride != stride_b or divided(size_b, part) is None:
            return None
        digits.append(Digit(part, (var, weight), (var_b, weight_b)))
        left = _rest(left, part)
        right = _rest(right, part)
    return None if left or right else digits


def _rest(terms: list[Part], part: Number) -> list[Part]:
    stride, var, size, weight = terms[0]
    if size == part:
        return terms[1:]
    return [(stride * part, var, divided(size, part), weight * part), *terms[1:]]


def assembled(a: Kernel, b: Kernel, digits: list[Digit]) -> Space | None:
    """Name the digits as axes, in the order of the kernel that reduces, or of the first."""
    reduced_a, reduced_b = dict(a.reduced), dict(b.reduced)
    groups: dict[bool, list[Digit]] = {False: [], True: []}
    for digit in digits:
        in_a = digit.first[0] in reduced_a if digit.first else None
        in_b = digit.second[0] in reduced_b if digit.second else None
        if a.reduced and b.reduced and in_a != in_b:
            return None
        groups[bool(in_a if a.reduced else in_b)].append(digit)
    lead = b if b.reduced and not a.reduced else a
    order = {v: i for i, (v, _) in enumerate(lead.rows + lead.reduced)}

    def position(digit: Digit) -> tuple[int, int]:
        part = digit.first if lead is a else digit.second
        return (order[part[0]], -part[1]) if part else (len(order), 0)
    first: dict[str, Index] = {v: Index() for v, _ in a.rows + a.reduced}
    second: dict[str, Index] = {v: Index() for v, _ in b.rows + b.reduced}
    axes: dict[bool, list[tuple[str, Number]]] = {False: [], True: []}
    for is_reduced, group in groups.items():
        for i, digit in enumerate(sorted(group, key=position)):
            name = f"{'r' if is_reduced else 'p'}{i}"
            axes[is_reduced].append((name, digit.size))
            for part, values in ((digit.first, first), (digit.second, second)):
                if part is not None:
                    values[part[0]] = values[part[0]] + ix.index(name) * part[1]
    return Space(tuple(axes[False]), tuple(axes[True]), first, second)
