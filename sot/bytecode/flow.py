"""Control flow of a code object: where branches meet, and which loops there are.

The compiler duplicates code: the test of a ``while`` stands before the loop and at its end, and a ``return`` stands at
the end of every path. Instructions with the same effect from there on are therefore one place: they have the same
operation, argument and source position, and their successors are the same places. A ``JUMP`` or ``NOP`` is the place
that it leads to. Exceptions are followed from ``raise`` to its handler only.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from types import CodeType

from sot.bytecode.code_table import CodeTable
from sot.bytecode.decode import decode
from sot.bytecode.instr import NO_FALL_THROUGH, Code, Instr

EXIT = -1       # the place after every return
RAISING = frozenset(("RAISE_VARARGS", "RERAISE"))
TESTS = {"POP_JUMP_IF_TRUE": "test", "POP_JUMP_IF_FALSE": "test", "POP_JUMP_IF_NONE": "none",
         "POP_JUMP_IF_NOT_NONE": "none"}


JUMPS = frozenset(("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"))     # those that ask for the truth of a value


def asking(instrs: list[Instr], pc: int) -> int:
    """The instruction that the truth of a value is for: itself, or the one after ``TO_BOOL``."""
    return pc + (instrs[pc].op == "TO_BOOL")


def ways(instrs: list[Instr], pc: int) -> tuple[int, int]:
    """The targets of a conditional jump: if its test is true, and if it is false."""
    instr = instrs[pc]
    if instr.op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_NONE", "JUMP_IF_TRUE_OR_POP"):
        return instr.target, pc + 1
    return pc + 1, instr.target


class Flow:
    """The control flow of a code object; ``place[pc]`` is the place of an instruction."""

    def __init__(self, code: Code) -> None:
        self.instrs = code.instrs
        self.place = _places(code)
        self.members: dict[int, set[int]] = {}
        for pc, place in enumerate(self.place):
            self.members.setdefault(place, set()).add(pc)
        first = {place: next(pc for pc in pcs if _is_real(self.instrs[pc]) or len(pcs) == 1)
                 for place, pcs in self.members.items()}
        self.ops = {place: self.instrs[pc].op for place, pc in first.items()}
        self.following = {place: [self.place[p] if p != EXIT else EXIT for p in _successors(code, pc)]
                          for place, pc in first.items()}
        self.iterates = {place for place, pc in first.items() if self.instrs[pc].op in ("FOR_ITER", "SEND")}
        starts = {self.place[0], *(self.place[h.target] for h in code.handlers)}
        self.loops = _loops(self.following, starts)
        # the places from which the end of the function can be reached
        self.returning = frozenset(_common(self.following))

    @functools.cached_property
    def unraised(self) -> frozenset[int]:
        """The places from which the end of the function can be reached without a ``raise``, handled or not."""
        before: dict[int, list[int]] = {}
        for place, after in self.following.items():
            for follower in after if self.ops[place] not in RAISING else ():
                before.setdefault(follower, []).append(place)
        found, todo = set(), [EXIT]
        while todo:
            found.add(place := todo.pop())
            todo += [p for p in before.get(place, ()) if p not in found]
        return frozenset(found)

    def pcs(self, place: int) -> frozenset[int]:
        return frozenset(self.members.get(place, ()))

    def loop(self, place: int) -> frozenset[int] | None:
        """The innermost loop that contains a place."""
        return min((body for body in self.loops.values() if place in body), key=len, default=None)

    def leaves(self, loop: frozenset[int], place: int) -> bool:
        """Whether a place of the loop can leave the loop without raising."""
        return place in loop and any(p not in loop and p in self.returning for p in self.following[place])

    def next_round(self, place: int) -> tuple[bool, frozenset[int]] | None:
        """For a test that may leave its loop: the truth value that starts another iteration, and the first
        instructions of that iteration.
        """
        loop = self.loop(place)
        if loop is None or TESTS.get(self.ops.get(place, "")) != "test" or not self.leaves(loop, place):
            return None
        then, otherwise = self.following[place]
        return (True, self.pcs(then)) if then in loop else (False, self.pcs(otherwise))

    def is_iteration(self, loop: frozenset[int]) -> bool:
        """Whether the loop is a ``for``."""
        return any(place in loop and self.loops[place] == loop for place in self.iterates if place in self.loops)

    def join(self, place: int, loop: frozenset[int] | None = None, latch: int = EXIT) -> int:
        """The first place that all paths from a place pass through; EXIT is the end of the function. Within an
        iteration of a loop, all paths end at its latch.
        """
        if loop is None:
            return _nearest(_common(self.following), place)
        inside = {p: [EXIT if s == latch or s not in loop else s for s in self.following[p]] for p in loop}
        found = _nearest(_common(inside), place)
        return latch if found == EXIT else found

    def meeting(self, place: int, loop: frozenset[int] | None = None, latch: int = EXIT) -> int:
        """The place where the paths from a test meet. It is the join, except where one path starts the next iteration
        without the loop's own test, as `a` does in `while a or b`. Then it is that test.
        """
        met = test = self.join(place, loop, latch)
        while test not in (EXIT, latch) and self.next_round(test) is None:
            test = self.join(test, loop, latch)
        body = self.loop(test) if self.next_round(test) else None
        if body is None or place not in body:
            return met
        begin = next(p for p in self.following[test] if p in body)
        return test if self.join(place, body, begin) == begin else met


def flow_of(code: CodeType) -> Flow:
    return _flows.of(code)


_flows: CodeTable[Flow] = CodeTable(lambda code: Flow(decode(code)))


def _is_real(instr: Instr) -> bool:
    return instr.op not in ("JUMP", "NOP")


def _successors(code: Code, pc: int) -> list[int]:
    instr = code.instrs[pc]
    if instr.op in TESTS:
        return [*ways(code.instrs, pc)]
    if instr.op == "RETURN_VALUE":
        return [EXIT]
    found = [] if instr.op in NO_FALL_THROUGH else [pc + 1]
    if instr.target is not None:
        found.append(instr.target)
    if instr.op in RAISING and instr.handler >= 0:
        found.append(code.handlers[instr.handler].target)
    return found


def _places(code: Code) -> list[int]:
    """For each instruction, the first equivalent instruction. Classes are split until they no longer change."""
    instrs = code.instrs
    lands = [_landing(instrs, pc) for pc in range(len(instrs))]
    after = [tuple(EXIT if p == EXIT else lands[p] for p in _successors(code, pc)) for pc in range(len(instrs))]
    handlers = [lands[code.handlers[i.handler].target] if i.handler >= 0 else EXIT for i in instrs]
    names = _numbered((TESTS.get(i.op, i.op), type(i.arg), repr(i.arg), i.pos, i.handler < 0 or
                       (code.handlers[i.handler].depth, code.handlers[i.handler].lasti)) for i in instrs)
    count = 0
    while (now := len(set(names))) != count:
        count = now
        known = [*names, EXIT]      # EXIT is the last index
        names = _numbered((names[pc], known[handlers[pc]], *(known[p] for p in after[pc])) for pc in range(len(instrs)))
    return [names[land] for land in lands]


def _landing(instrs: list[Instr], pc: int) -> int:
    """The instruction that execution reaches from here without doing anything."""
    seen = set()
    while not _is_real(instrs[pc]) and pc not in seen:
        seen.add(pc)
        pc = instrs[pc].target if instrs[pc].op == "JUMP" else pc + 1
    return pc


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


# ---- sets of places are the bits of an int -----------------------------------------------------------------------
def _common(following: dict[int, list[int]]) -> dict[int, int]:
    """For each place that reaches the exit: the places that all paths from it to the exit pass through."""
    before: dict[int, list[int]] = {}
    for place, after in following.items():
        for p in after:
            before.setdefault(p, []).append(place)
    return _through_all([EXIT], lambda p: following.get(p, []), lambda p: before.get(p, []))


def _through_all(roots: Iterable[int], towards: Callable[[int], list[int]],
                 away: Callable[[int], list[int]]) -> dict[int, int]:
    """For each place that a root leads to (by ``away``): the places on every way to it, itself among them."""
    order: list[int] = []
    reached, todo = set(roots), [*roots]
    while todo:
        place = todo.pop()
        order.append(place)
        new = [p for p in away(place) if p not in reached]
        reached.update(new)
        todo += new
    everything = ~0
    found = {place: 1 << (place + 1) if place in set(roots) else everything for place in order}
    changed = True
    while changed:
        changed = False
        for place in order:
            if place in set(roots):
                continue
            common = everything
            for p in towards(place):
                common &= found.get(p, everything)
            common |= 1 << (place + 1)
            changed |= common != found[place]
            found[place] = common
    return found


def _nearest(common: dict[int, int], place: int) -> int:
    """The nearest of the places that all paths from a place pass through: the one that most of the others follow."""
    others = common.get(place, 0) & ~(1 << (place + 1))
    inside = [p for p in common if others >> (p + 1) & 1]
    return max(inside, key=lambda p: common[p].bit_count(), default=EXIT)


def _loops(following: dict[int, list[int]], starts: set[int]) -> dict[int, frozenset[int]]:
    """The places of each loop, by its head. All paths into the loop pass through its head."""
    before: dict[int, list[int]] = {}
    for place, after in following.items():
        for p in after:
            before.setdefault(p, []).append(place)
    dominators = _through_all(starts, lambda p: before.get(p, []), lambda p: following.get(p, []))
    loops: dict[int, set[int]] = {}
    for place, after in following.items():
        for head in after:
            if head != EXIT and dominators.get(place, 0) >> (head + 1) & 1:
                loops.setdefault(head, {head})
                _add_body(loops[head], place, before)
    return {head: frozenset(body) for head, body in loops.items()}


def _add_body(body: set[int], place: int, before: dict[int, list[int]]) -> None:
    """Add the places that lead to the end of a loop without passing through its head."""
    todo = [place]
    while todo:
        p = todo.pop()
        if p not in body:
            body.add(p)
            todo += before.get(p, [])
