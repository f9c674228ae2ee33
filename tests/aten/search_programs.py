"""Compares random ATen programs, compiled by the Triton backend, with eager: results, gradients, changes of arguments,
shared memory, and the numbers that are drawn afterwards.

    cd tests/aten && PYTHONPATH=../support python search_programs.py --seed 7 --minutes 3 [--interpreter] [--sizes]
    ... search_programs.py --seed 7 --captured triton       (or inductor, aot_eager, eager), with SOT_STRICT=1
    ... search_programs.py --seed 7 --captured triton --device cuda

Kernels are evaluated by the NumPy reference, which is fast, or with ``--interpreter`` by Triton's interpreter, which
also tests the generated code. With ``--sizes`` each program is captured with sizes that vary, and called with several
sets of sizes. With ``--captured`` programs are captured, so that the rest of SOT is part of the comparison. A program
that differs is printed.
"""
from __future__ import annotations

import argparse
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import aten_layers
import aten_numbers
import aten_states
import torch
from aten_maker import Input, Maker, Program
from aten_programs import NOTED
from compiling import Kernels, run_reference
from torch import fx
from torch._subclasses import FakeTensorMode

import sot
from sot.backends.triton.compiler import Compiler
from sot.backends.triton.source.sizes import fits
from sot.backends.triton.variants import Symbolic
from sot.graph.kernels.program import Buffer, Extern, Group, Step, View
from sot.graph.kernels.program import Program as Lowered
from sot.graph.kernels.schedule import schedule
from sot.graph.kernels.sized import at_values
from sot.graph.kernels.sizes import Real, assuming, evaluated
from sot.graph.lowering import NotLowered, lower
from sot.graph.rewrite import decompositions
from sot.torch_compat import compilers

REGISTERED = (aten_layers, aten_numbers, aten_states)       # lines of programs
TRACED: list[tuple[Program, AssertionError]] = []   # what differs already in torch's trace
TOLERANCE = {"bfloat16": (5e-2, 5e-2), "float16": (1e-2, 1e-2), "float32": (1e-3, 1e-4)}


class Difference(AssertionError):
    """A compiled program does something else than eager."""


class Referenced(Compiler):
    """The Triton backend with kernels that the NumPy reference evaluates; what goes wrong raises."""

    def __init__(self) -> None:
        super().__init__("cpu", interpreted=True, strict=True)
        self.programs: list[Lowered] = []       # those with sizes that vary

    def compile_or_raise(self, graph: fx.GraphModule, title: str, symbolic: Symbolic | None = None,
                         ) -> Callable[[list[Any]], Any]:
        if symbolic is None:
            program = self.lowered(graph)
            return lambda inputs: run_reference(program, inputs)
        with assuming(symbolic.facts):
            program = schedule(lower(graph, self.device, symbolic.places))
        names: dict[str, Any] = {}
        exec("\n".join(fits(symbolic.places, symbolic.facts)), names)
        symbolic.fits = names["fits"]
        self.programs.append(program)
        return lambda inputs: run_reference(concrete(program, inputs), inputs)


def concrete(program: Lowered, inputs: list[Any]) -> Lowered:
    """The program for the sizes of these inputs."""
    given = dict(zip(program.inputs, inputs, strict=True))
    values = {name: eval(place, given) for name, place in program.symbols.items()}

    def of(value: Any) -> Any:
        if isinstance(value, Real):
            return eval(value.text, {}, dict(given, **values))
        if isinstance(value, View | Buffer):
            value = dataclasses.replace(value, shape=tuple(map(of, value.shape)),
                                        strides=tuple(map(of, value.strides)))
            return dataclasses.replace(value, offset=of(value.offset)) if isinstance(value, View) else value
        return evaluated(value, values)

    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, Extern):
            args, kwargs = fx.node.map_aggregate((step.args, step.kwargs), of)
            steps.append(dataclasses.replace(step, args=args, kwargs=kwargs))
        else:
            steps += [at_values(k, values) for k in (step.kernels if isinstance(step, Group) else (step,))]
    return dataclasses.replace(program, buffers={n: of(b) for n, b in program.buffers.items()}, steps=steps,
                               outputs=fx.node.map_aggregate(program.outputs, of))


def outcome(fn: Callable[..., Any], args: list[torch.Tensor]) -> dict[str, Any]:
    """What a program does, as data."""
    torch.manual_seed(0)
    del NOTED[:]
    results = fn(*args)
    shared = [[_shares(a, b) for b in (*results, *args)] for a in results]
    wanted = [a for a in args if a.requires_grad]
    given = [r for r in results if r.requires_grad]
    found: dict[str, Any] = {"results": [r.detach().clone() for r in results], "drawn next": torch.rand(2)}
    found["drawn next on the device"] = [torch.rand(2, device=a.device) for a in args[:1]]
    found["noted"] = [list(NOTED)]
    found["strides"] = strides(results)
    found["requires gradients"] = [r.requires_grad for r in results]
    found["shared memory"] = shared
    found["arguments"] = [a.detach().clone() for a in args]
    if wanted and given:
        weights = [torch.linspace(0.5, 1.5, max(r.numel(), 1), dtype=torch.float64)[:r.numel()].reshape(r.shape).to(r)
                   for r in given]
        found["gradients"] = torch.autograd.grad(given, wanted, weights, allow_unused=True)
    return found


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() > 0 and b.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def compare(program: Program, backend: Callable[[], Compiler], counts: Counter[str]) -> None:
    """Raise Difference unless the compiled program does what the program does."""
    fn = program.function()
    try:
        expected = outcome(fn, program.arguments())
    except RuntimeError:
        counts["raises"] += 1       # in the backward pass
        return
    ignored = ("shared memory",) if backend is Referenced else ()
    try:
        counts["compared"] += compare_outcomes(program, traced(backend), expected, counts, ignored)
    except Difference:
        counts["compared"] += 1
        try:
            compare_outcomes(program, traced(only_traced), expected, counts)
        except Difference as difference:
            counts["differs already in torch's trace"] += 1
            TRACED.append((program, difference))
            return
        raise


def only_traced() -> Callable[..., Any]:
    """A backend that runs what AOTAutograd makes of a graph, with the decompositions, as it is."""
    def same(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        return lambda values: graph.forward(*values)
    return lambda gm, args: compilers.ahead_of_time(gm, args, same, same, same, decompositions.table())


def traced(backend: Callable[[], Any]) -> Callable[..., Any]:
    """Gives the graph of a program to a backend."""
    return lambda fn, args: backend()(fx.symbolic_trace(fn), args)


def compare_captured(program: Program, backend: str, counts: Counter[str]) -> None:
    """Raise Difference unless a program that is captured does what it does, with one of the backends by name."""
    fn = program.function()
    try:
        expected = outcome(fn, program.arguments())
    except RuntimeError:
        counts["raises"] += 1
        return
    try:
        counts["compared"] += compare_outcomes(program, lambda fn, args: sot.to_static(fn, backend=backend), expected,
                                               counts)
    finally:
        sot.reset()


def compare_outcomes(program: Program, compile_program: Callable[..., Any], expected: dict[str, Any],
                     counts: Counter[str], ignored: Sequence[str] = ()) -> bool:
    """Raise Difference if a compiled program does something else. Returns whether it was compiled.

    Arguments:
        compile_program: a function of the program's function and arguments.
    """
    fn, args = program.function(), program.arguments()
    near = outcome(fn, [_nudged(a) for a in program.arguments()])
    try:
        got = outcome(compile_program(fn, args), args)
    except NotLowered as reason:
        counts[f"not lowered: {str(reason).partition(' returns ')[2]}"] += 1
        return False
    except Exception as error:      # of whatever kind
        if "NotLowered" in str(error) or "DynamicOutputShapeException" in str(error):
            counts["not lowered"] += 1
            return False
        raise Difference(f"{type(error).__name__}: {error}") from error
    for what, value in expected.items():
        if what in ignored:
            continue
        for mine, theirs, nudged in zip(got.get(what, ()), value, near.get(what, value), strict=True):
            if not is_other(mine, theirs, program):
                continue
            if isinstance(theirs, torch.Tensor) and is_other(nudged, theirs, program, 0.01):
                counts["ill-conditioned"] += 1
                return True
            if what == "strides" and fake_strides(program) != value:
                counts["torch's fake tensors have other strides"] += 1
                return True
            raise Difference(f"{what}:\n{mine}\ninstead of\n{theirs}")
    return True


def compare_sizes(program: Program, backend: Callable[[], Compiler], counts: Counter[str]) -> None:
    """Raise Difference unless a program that is compiled for all sizes does what it does, for several sizes."""
    made = backend()
    try:
        compare_calls(program, made, counts)
    except Difference:
        try:
            compare_calls(program, "aot_eager", Counter())
        except Difference:
            counts["differs already in torch's trace"] += 1
            return
        raise
    finally:
        sot.reset()
    counts["modules for all sizes"] += len(made.programs) if isinstance(made, Referenced) else len(made.made)


def compare_calls(program: Program, made: Any, counts: Counter[str]) -> None:
    run = sot.to_static(program.function(), backend=made, dynamic=True)
    for step in (0, 1, 3, 14, 16):
        other = dataclasses.replace(program, inputs=[resized(one, step) for one in program.inputs])
        try:
            expected = outcome(other.function(), other.arguments())
        except (RuntimeError, IndexError):
            counts["sizes for which it raises"] += 1
            continue
        counts["sets of sizes"] += 1
        try:
            counts["compared"] += compare_outcomes(other, lambda fn, args: run, expected, counts,
                                                   ("shared memory",) if isinstance(made, Referenced) else ())
        except Difference as difference:
            raise Difference(f"with {[one.shape for one in other.inputs]}: {difference}") from difference


def resized(one: Input, step: int) -> Input:
    """An input with other sizes. Equal sizes stay equal, and 0 and 1 stay as they are."""
    return dataclasses.replace(one, shape=tuple(n + step if n > 1 else n for n in one.shape))


def fake_strides(program: Program) -> Any:
    """The strides of the results of fake tensors; None if torch cannot find them."""
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(a) for a in program.arguments()]
    try:
        with mode:
            return strides(program.function()(*fakes))
    except Exception:
        return None


def strides(results: Any) -> list[list[int]]:
    """The strides of axes that have more than one place."""
    return [[s for s, n in zip(r.stride(), r.shape, strict=True) if n > 1] for r in results if r.numel()]


def _nudged(value: torch.Tensor) -> torch.Tensor:
    """The argument, changed in its last bits."""
    if not value.is_floating_point() and not value.is_complex():
        return value
    eps = torch.finfo(value.dtype).eps
    with torch.no_grad():
        once = value[tuple(slice(None if stride else 1) for stride in value.stride())]      # each place in memory
        once.mul_(1 + eps * (torch.arange(once.numel()).reshape(once.shape) % 3 - 1).to(value))
    return value


def is_other(mine: Any, theirs: Any, program: Program, share: float = 1.0) -> bool:
    """Whether results differ by more than the least precise type of the program explains."""
    if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor):
        return mine != theirs
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        return True
    if theirs.is_complex():
        return any(is_other(part(mine), part(theirs), program, share) for part in (torch.real, torch.imag))
    if not theirs.is_floating_point():
        return not torch.equal(mine, theirs)
    relative, absolute = next(found for name, found in TOLERANCE.items() if name in f"{program} float32")
    return not torch.allclose(mine, theirs, relative * share, absolute * share, equal_nan=True)


def show(program: Program, difference: AssertionError) -> None:
    print(f"# seed {program.seed}\n{program}\n{str(difference)[:1500]}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--interpreter", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--captured", metavar="BACKEND", help="capture programs, for a backend by name")
    parser.add_argument("--device", default="cpu", help="of the arguments, with --captured")
    parser.add_argument("--traced", action="store_true", help="print also what differs already in torch's trace")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    end = time.monotonic() + 60 * options.minutes
    n = options.seed * 1_000_003
    while time.monotonic() < end and counts["programs"] < options.count:
        program = dataclasses.replace(Maker(n).make(), device=options.device)
        counts["programs"] += 1
        n += 1
        try:
            if options.captured:
                compare_captured(program, options.captured, counts)
            else:
                backend = Kernels if options.interpreter else Referenced
                (compare_sizes if options.sizes else compare)(program, backend, counts)
        except Difference as difference:
            counts["different"] += 1
            show(program, difference)
        while TRACED:
            traced = TRACED.pop()
            if options.traced:
                print("# torch's trace:")
                show(*traced)
        if counts["programs"] % 500 == 0:
            print(dict(counts), flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
