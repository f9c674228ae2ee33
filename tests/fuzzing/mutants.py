"""Faults that are put into SOT on purpose: the fuzzer finds each of them, or is blind to what it should see.

    python -m fuzzing.mutants [--programs 300] [--seed 1] [NAME ...]

Each mutant leaves out one kind of guard, or one effect that emitted code makes. It runs in a process of its own, since
a missing guard may crash C code that relies on it. A crash counts as found, as does a difference.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from torch._functorch import compile_utils

from sot.codegen import compile_graph
from sot.codegen.compiled_graphs import independent_results, pieces
from sot.codegen.emit import Emitter
from sot.guards import guards, library_functions, tensor_guards
from sot.interpreter import trace
from sot.interpreter.machine import Machine
from sot.interpreter.torch_ops.data_sizes import float_arguments, refused_numbers
from sot.polyfills import iteration, special_methods
from sot.support.registry import HANDLERS
from sot.torch_compat.operators import layouts, trials
from sot.values.base import boolean
from sot.values.callables import CellValue
from sot.values.objects import DictValue, ListValue, ObjectValue, SetValue

from . import differ
from .strategies import each_program

Mutant = Callable[[], AbstractContextManager]


def without_guards(kind: type) -> Mutant:
    """Guards of this class are not checked."""
    plain = Machine.guard

    def guard(self: Machine, guard: guards.Guard) -> None:
        if type(guard) is not kind:
            plain(self, guard)
    return lambda: mock.patch.object(Machine, "guard", guard)


def without(owner: Any, name: str, result: Any = None, argument: int | None = None) -> Mutant:
    """A function does nothing: it returns that result, or that argument."""
    return lambda: mock.patch.object(owner, name, lambda *args: result if argument is None else args[argument])


def handled(function: Any, handler: Callable[..., Any]) -> Mutant:
    """Calls of a function are answered by this handler."""
    @contextmanager
    def changed() -> Iterator[None]:
        plain = HANDLERS[function]
        dict.__setitem__(HANDLERS, function, handler)
        try:
            yield
        finally:
            dict.__setitem__(HANDLERS, function, plain)
    return changed


def both(first: Mutant, second: Mutant) -> Mutant:
    @contextmanager
    def changed() -> Iterator[None]:
        with first(), second():
            yield
    return changed


GUARDS = (guards.IsGuard, guards.EqualsGuard, guards.TypeGuard, guards.LengthGuard, guards.KeysGuard,
          guards.HasKeyGuard, guards.CodeGuard, guards.NoHooksGuard, guards.SameGuard, guards.RelationGuard,
          library_functions.FlagGuard, tensor_guards.TensorGuard, tensor_guards.FactGuard, tensor_guards.ValuesGuard)
COMPILED: dict[str, Mutant] = {     # found with a backend that compiles
    "equal draws": lambda: mock.patch.object(compile_utils, "rand_ops", list(compile_utils.rand_ops)),
    "weights saved by later parts": both(without(independent_results, "is_saved_later", False),
                                         without(pieces, "is_saved_later", False)),
    "other memory": without(compile_graph, "resizes_memory", False),
    "numbers that do not fit": without(float_arguments, "fits", True),
}
MUTANTS: dict[str, Mutant] = {
    **{kind.__name__: without_guards(kind) for kind in GUARDS},
    "DistinctGuard": without(trace, "distinct_guards", ()),
    "changes of lists": without(ListValue, "replay"),
    "changes of dicts and attributes": without(DictValue, "replay"),
    "changes of sets": without(SetValue, "replay"),
    "changes of slots": without(ObjectValue, "replay"),
    "changes of closures": without(CellValue, "replay"),
    "attributes of tensors": without(Emitter, "write_attrs"),
    "output": without(Machine, "effect"),
    "positions of iterators": without(Emitter, "set_position"),
    "undoing at a break": without(Machine, "undoable"),
    "layouts of kernels": without(layouts, "as_kernel", argument=3),
    "refused numbers": without(refused_numbers, "keep"),
    "kernels that are missing": without(trials, "error_of", ""),
    "iterators asked once": handled(iteration.has_own_iter, lambda m, args, kwargs: boolean(False)),
    "equal objects": lambda: mock.patch.object(guards, "same_constant", lambda a, b: type(a) is type(b) and a == b),
    "results of special methods": handled(special_methods.answer, lambda m, args, kwargs: args[3]),
    **COMPILED,
}


def hunt(name: str, programs: int, seed: int) -> int:
    """The number of the program that shows the mutant; 0 if none does."""
    tried = found = 0

    def one(source: str) -> None:
        nonlocal tried, found
        if found:
            return
        tried += 1
        print(tried, flush=True)     # known even if the process dies
        if differ.differs(source, "aot_eager" if name in COMPILED else "eager"):
            found = tried
    with MUTANTS[name]():
        each_program(programs, seed, one)
    return found


def outcome(name: str, programs: int, seed: int) -> str:
    """What became of a mutant, in words; it begins with "found" or "not"."""
    command = [sys.executable, "-W", "ignore", "-m", "fuzzing.mutants", "--hunt", name]
    command += ["--programs", str(programs), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=7200)
    lines = done.stdout.split()
    if done.returncode < 0:
        return f"found after {lines[-1]} programs, by a crash (signal {-done.returncode})"
    if done.returncode and not lines:
        raise RuntimeError(done.stderr)
    if done.returncode:
        return f"found after {lines[-1]} programs, by {done.stderr.splitlines()[-1][:80]}"
    return f"found after {lines[-1]} programs" if lines[-1] != "0" else f"not found in {programs} programs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzzing.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="which mutants; all by default")
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hunt", help="be the process of this mutant")
    args = parser.parse_args()
    if args.hunt:
        print(hunt(args.hunt, args.programs, args.seed))
        return 0
    missed = 0
    for name in args.names or MUTANTS:
        told = outcome(name, args.programs, args.seed)
        missed += told.startswith("not")
        print(f"{name:36} {told}", flush=True)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
