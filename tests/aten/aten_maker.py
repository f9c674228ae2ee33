"""Makes random programs, as text, of the lines that ``aten_programs.py`` registers with ``kind``."""
from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

LINES = 9
NAMES: dict[str, Any] = {"torch": torch, "F": F, "inf": float("inf")}     # what programs may use
KEPT = {"drawn", "noted"}     # kinds whose results are returned
SIZES = (1, 2, 2, 3, 3, 4, 5, 7)
LAYOUTS = ("dense", "dense", "dense", "dense", "transposed", "transposed", "spread", "inside", "one row", "extreme",
           "extreme", "negated")
FLOATS = ("float32", "float32", "float64", "float64", "float16", "bfloat16")
OTHERS = ("int64", "int64", "int32", "uint8", "int8", "bool")


@dataclasses.dataclass
class Input:
    """An argument. ``layout`` is how it lies in memory: a word, or the expression of another argument that it is."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    grad: bool

    @property
    def is_shared(self) -> bool:
        return self.name.startswith("s")

    def tensor(self, seed: int, device: str = "cpu") -> torch.Tensor:
        generator, dtype = torch.Generator().manual_seed(seed), getattr(torch, self.dtype)
        if self.name.startswith("i"):
            made = torch.randint(-1, 2, self.shape, generator=generator)
        elif dtype.is_complex:
            made = torch.randn(self.shape, generator=generator, dtype=torch.complex128).to(dtype)
        elif dtype.is_floating_point:
            made = torch.randn(self.shape, generator=generator, dtype=torch.float64).to(dtype)
        else:
            made = torch.randint(0, 2 if dtype is torch.bool else 9, self.shape, generator=generator).to(dtype)
        return self._laid_out(made.to(device)).requires_grad_(self.grad)

    def _laid_out(self, made: torch.Tensor) -> torch.Tensor:
        match self.layout:
            case "transposed":
                return made.transpose(0, -1).contiguous().transpose(0, -1)
            case "spread":
                return torch.stack([made, made], -1)[..., 0]
            case "extreme":
                kinds, places = extremes(made.dtype), torch.arange(made.numel()).view(made.shape)
                return torch.where((places % 3 == 1).to(made.device), kinds[places // 3 % len(kinds)].to(made.device),
                                   made)
            case "one row":
                return made[:1].clone().expand(made.shape)
            case "negated":     # where it is read: torch marks such a view
                return torch.complex(made, -made).conj().imag if made.dtype in NEGATED else made
            case "conjugated":
                return made.conj()
            case "inside":
                return torch.cat([made.reshape(-1)[:1], made.reshape(-1)])[made.numel() > 0:].view(made.shape)
        return made


NEGATED = (torch.float32, torch.float64)


def extremes(dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if dtype.is_floating_point:
        return torch.tensor([math.inf, -0.0, math.nan, -math.inf, 1e4, -1e-7], dtype=dtype)
    return torch.tensor([torch.iinfo(dtype).max, torch.iinfo(dtype).min, 0], dtype=dtype)


@dataclasses.dataclass
class Program:
    seed: int
    inputs: list[Input]
    lines: list[str]
    results: list[str]
    device: str = "cpu"     # of its arguments, and of tensors that are made inside, except numbers

    def __str__(self) -> str:
        about = [f"    # {i.name}: {i.dtype} {i.shape} {i.layout}{', grad' if i.grad else ''}" for i in self.inputs]
        names = ", ".join(i.name for i in self.inputs)
        lines = [f"    {line if self.device == 'cpu' else on_device(line, self.device)}" for line in self.lines]
        return "\n".join([f"def program({names}):", *about, *lines, f"    return {', '.join(self.results)},"])

    def function(self) -> Callable[..., Any]:
        names = dict(NAMES)
        exec(str(self), names)
        return names["program"]

    def arguments(self) -> list[torch.Tensor]:
        made: dict[str, torch.Tensor] = {}
        for n, one in enumerate(self.inputs):
            made[one.name] = eval(one.layout, {}, made) if one.is_shared else one.tensor(self.seed + n, self.device)
        return list(made.values())


MAKES = re.compile(r"torch\.(arange|linspace|eye|ones|rand|randint|tensor)\(")


def on_device(line: str, device: str) -> str:
    """The line with a device in each call that makes a tensor, except one of a number."""
    for found in reversed([*MAKES.finditer(line)]):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        given = line[found.end():end - 1]
        if "device=" not in given and (found[1] != "tensor" or given.startswith("[")):
            line = f"{line[:end - 1]}, device={device!r}{line[end - 1:]}"
    return line


class Maker:
    """Makes one program. ``known`` has the values of its variables."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.program = Program(seed, self._inputs(), [], [])
        self.known: dict[str, torch.Tensor] = {}
        self.draws: list[str] = []
        for one, value in zip(self.program.inputs, self.program.arguments(), strict=True):
            self.known[one.name] = value

    def make(self) -> Program:
        kinds, weights = zip(*KINDS.items(), strict=True)
        for _ in range(self.random.randint(2, 2 * LINES)):
            if len(self.program.lines) < LINES:
                try:
                    self._add(self.random.choices(kinds, [w for _, w in weights])[0])
                except (IndexError, ValueError, ZeroDivisionError):
                    continue
        names = list(self.known)
        recent = names[-3:] if len(names) > 3 else names
        others = self.random.sample(names, min(len(names), self.random.choice((0, 0, 1, 2))))
        self.program.results = list(dict.fromkeys([*recent, *others, *self.draws]))
        return self.program

    def _add(self, kind: str) -> None:
        rule, _ = KINDS[kind]
        text = rule(self)
        name = f"v{len(self.program.lines)}"
        torch.manual_seed(0)
        before = {k: v.detach().clone() for k, v in self.known.items()}
        try:
            value = eval(text, dict(NAMES), dict(self.known))
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            if any(not torch.equal(v, before[k]) and not v.isnan().any() for k, v in self.known.items()):
                raise ValueError("changed by what failed") from None
            return
        if isinstance(value, torch.Tensor) and value.numel() <= 3000 and value.dtype in SUPPORTED:
            self.program.lines.append(f"{name} = {text}")
            self.known[name] = value
            if kind in KEPT:
                self.draws.append(name)     # AOTAutograd drops what is unused

    def _inputs(self) -> list[Input]:
        floats = [self._input(f"x{n}", self.random.choice(FLOATS)) for n in range(self.random.randint(1, 2))]
        others = [self._input("n0", self.random.choice(OTHERS))] if self.random.random() < 0.5 else []
        others += [self._input("z0", "complex64")] if self.random.random() < 0.1 else []
        where = [Input("i0", (self.random.choice((1, 2, 3)),), "int64", "dense", False)]
        return floats + others + (where if self.random.random() < 0.6 else []) + self._shared(floats)

    def _shared(self, floats: list[Input]) -> list[Input]:
        """Sometimes an argument that shares memory with the first."""
        base = floats[0]
        if self.random.random() > 0.1 or not base.shape or 0 in base.shape:
            return []
        base.grad = False
        how = self.one("x0[1:]", "x0.transpose(0, -1)", "x0[0]", "x0[..., None]", "x0[..., ::2]")
        return [Input("s0", (), base.dtype, how, False)]

    def _input(self, name: str, dtype: str) -> Input:
        rank = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        shape = tuple(0 if self.random.random() < 0.01 else self.random.choice(SIZES) for _ in range(rank))
        layout = "dense"
        if rank:
            layout = self.random.choice(LAYOUTS if dtype != "complex64" else (*LAYOUTS[:-3], "conjugated"))
        return Input(name, shape, dtype, layout, name[0] in "xz" and self.random.random() < 0.6)

    # ---- choices
    def any(self, test: Callable[[torch.Tensor], bool] = lambda v: True) -> str:
        """The name of a value, rather a recent one."""
        names = [n for n, v in self.known.items() if test(v)]
        if not names:
            raise ValueError("there is no such value")
        return self.random.choice(names[-3:] if self.random.random() < 0.6 else names)

    def float(self) -> str:
        return self.any(lambda v: v.is_floating_point())

    def ranked(self, rank: int = 1) -> str:
        return self.any(lambda v: v.dim() >= rank)

    def of(self, name: str) -> torch.Tensor:
        return self.known[name]

    def dim(self, name: str) -> int:
        rank = self.of(name).dim()
        return self.random.randrange(-rank, rank) if rank else 0

    def dims(self, name: str) -> str:
        """An argument ``dim``: an axis, several, or none."""
        rank = self.of(name).dim()
        if not rank or self.random.random() < 0.15:
            return ""
        chosen = self.random.sample(range(rank), self.random.randint(1, rank))
        keep = self.random.choice(("", ", keepdim=True"))
        return f"{chosen[0] if len(chosen) == 1 else tuple(chosen)}{keep}"

    def one(self, *options: Any) -> Any:
        return self.random.choice(options)

    def number(self) -> str:
        return self.one("2", "-1", "0.5", "3", "1.5", "0")

    def part(self, name: str) -> str:
        """A subscript of slices and positions."""
        parts = []
        for size in self.of(name).shape:
            low, high = sorted(self.random.choices(range(size + 1), k=2))
            parts.append(self.one(":", ":", f"{low}:{high}", f"{low}:", f"-{min(size, 2) or 1}:", "::2", "1::2",
                                  str(self.random.randrange(-size, size)) if size else ":"))
        parts = parts[:self.random.randint(1, len(parts))] if parts else ["..."]
        if self.random.random() < 0.3:
            parts.insert(self.random.randint(0, len(parts)), "None")
        return ", ".join(parts)

    def shape(self, count: int) -> tuple[int, ...]:
        """A shape of so many elements."""
        found: list[int] = []
        while count > 1 and len(found) < 3:
            size = self.one(*[n for n in range(2, count + 1) if count % n == 0])
            found.append(size)
            count //= size
        found += [count] if count != 1 else []
        return tuple(found + [1] * (self.random.random() < 0.2))


SUPPORTED = frozenset(getattr(torch, name) for name in (*FLOATS, *OTHERS, "int16", "complex64", "complex128"))
Rule = Callable[[Maker], str]
KINDS: dict[str, tuple[Rule, int]] = {}


def kind(weight: int) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        KINDS[rule.__name__] = rule, weight
        return rule
    return register
