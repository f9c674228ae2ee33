"""Random programs of ATen operators, as text: views, changes in place, broadcasting, reductions, indexing, scans, mixed
types, sizes of 0 and 1, random draws, and results that share memory with arguments.

    def program(x0, x1, i0):
        v0 = x0.transpose(0, 1)
        v1 = v0[..., 1:].mul_(2)
        return v0, torch.rand_like(v1)

A line is added only if eager can execute it, so that most programs are valid. ``search_programs.py`` in
``tests/aten`` compares many of them with eager.
"""
from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

LINES = 9
SIZES = (1, 2, 2, 3, 3, 4, 5, 7)
FLOATS = ("float32", "float32", "float64", "float64", "float16", "bfloat16")
OTHERS = ("int64", "int64", "int32", "uint8", "int8", "bool")
NAMES = {"torch": torch, "F": F, "inf": float("inf")}


@dataclasses.dataclass
class Input:
    """An argument. ``layout`` is how it lies in memory."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    grad: bool

    def tensor(self, seed: int) -> torch.Tensor:
        generator, dtype = torch.Generator().manual_seed(seed), getattr(torch, self.dtype)
        if self.name.startswith("i"):
            made = torch.randint(-1, 2, self.shape, generator=generator)
        elif dtype.is_floating_point:
            made = torch.randn(self.shape, generator=generator, dtype=torch.float64).to(dtype)
        else:
            made = torch.randint(0, 2 if dtype is torch.bool else 9, self.shape, generator=generator).to(dtype)
        return self._laid_out(made).requires_grad_(self.grad)

    def _laid_out(self, made: torch.Tensor) -> torch.Tensor:
        match self.layout:
            case "transposed":
                return made.transpose(0, -1).contiguous().transpose(0, -1)
            case "spread":
                return torch.stack([made, made], -1)[..., 0]
            case "inside":
                return torch.cat([made.reshape(-1)[:1], made.reshape(-1)])[made.numel() > 0:].view(made.shape)
        return made


@dataclasses.dataclass
class Program:
    seed: int
    inputs: list[Input]
    lines: list[str]
    results: list[str]

    def __str__(self) -> str:
        about = [f"    # {i.name}: {i.dtype} {i.shape} {i.layout}{', grad' if i.grad else ''}" for i in self.inputs]
        names = ", ".join(i.name for i in self.inputs)
        lines = [f"    {line}" for line in self.lines]
        return "\n".join([f"def program({names}):", *about, *lines, f"    return {', '.join(self.results)},"])

    def function(self) -> Callable[..., Any]:
        names = dict(NAMES)
        exec(str(self), names)
        return names["program"]

    def arguments(self) -> list[torch.Tensor]:
        return [one.tensor(self.seed + n) for n, one in enumerate(self.inputs)]


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
            if rule is drawn:
                self.draws.append(name)     # AOTAutograd drops unused draws

    def _inputs(self) -> list[Input]:
        floats = [self._input(f"x{n}", self.random.choice(FLOATS)) for n in range(self.random.randint(1, 2))]
        others = [self._input("n0", self.random.choice(OTHERS))] if self.random.random() < 0.5 else []
        where = [Input("i0", (self.random.choice((1, 2, 3)),), "int64", "dense", False)]
        return floats + others + (where if self.random.random() < 0.6 else [])

    def _input(self, name: str, dtype: str) -> Input:
        rank = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        shape = tuple(0 if self.random.random() < 0.01 else self.random.choice(SIZES) for _ in range(rank))
        layout = self.random.choice(("dense", "dense", "dense", "transposed", "spread", "inside")) if rank else "dense"
        return Input(name, shape, dtype, layout, name.startswith("x") and self.random.random() < 0.6)

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


SUPPORTED = frozenset(getattr(torch, name) for name in (*FLOATS, *OTHERS, "int16"))
Rule = Callable[[Maker], str]
KINDS: dict[str, tuple[Rule, int]] = {}


def kind(weight: int) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        KINDS[rule.__name__] = rule, weight
        return rule
    return register


@kind(8)
def unary(m: Maker) -> str:
    name = m.one("sin", "cos", "exp", "relu", "neg", "sigmoid", "tanh", "abs", "square", "floor", "sign", "erf", "ceil",
                 "round", "trunc", "isfinite", "logical_not", "expm1", "positive", "frac", "signbit", "atan", "isnan")
    return f"torch.{name}({m.any()})"


@kind(3)
def activation(m: Maker) -> str:
    name = m.one("gelu", "silu", "softplus", "leaky_relu", "hardtanh", "elu", "hardswish", "logsigmoid", "mish",
                 "relu6")
    return f"F.{name}({m.float()})"


@kind(12)
def binary(m: Maker) -> str:
    name = m.one("add", "sub", "mul", "maximum", "minimum", "atan2", "hypot", "fmod", "remainder", "floor_divide", "eq",
                 "lt", "ge", "ne", "logical_and", "logical_xor", "bitwise_and", "bitwise_or", "fmin", "copysign")
    return f"torch.{name}({m.any()}, {m.any()})"


@kind(3)
def safely_divided(m: Maker) -> str:
    return f"{m.any()} / ({m.any()}.abs() + 1)"


@kind(5)
def with_number(m: Maker) -> str:
    return m.one("{0} {2} {1}", "{1} {2} {0}").format(m.any(), m.number(), m.one("+", "-", "*", "<", ">="))


@kind(2)
def by_number(m: Maker) -> str:
    return f"{m.any()} {m.one('/', '//', '%', '**')} {m.one(2, 3, 0.5)}"


@kind(3)
def chosen(m: Maker) -> str:
    return f"torch.where({m.any()} > {m.one(m.any(), '0')}, {m.any()}, {m.any()})"


@kind(2)
def clamped(m: Maker) -> str:
    return f"{m.any()}.clamp({m.one('-1', '0', 'None')}, {m.one('1', '2.5')})"


@kind(4)
def converted(m: Maker) -> str:
    return f"{m.any()}.to(torch.{m.one(*FLOATS, *OTHERS)})"


@kind(1)
def scaled_sum(m: Maker) -> str:
    return m.one(f"torch.addcmul({m.float()}, {m.float()}, {m.float()}, value=0.5)",
                 f"torch.lerp({m.float()}, {m.float()}, 0.3)", f"torch.add({m.any()}, {m.any()}, alpha=2)")


# ---- views ---------------------------------------------------------------------------------------------------
@kind(10)
def subscript(m: Maker) -> str:
    name = m.ranked()
    return f"{name}[{m.part(name)}]"


@kind(5)
def transposed(m: Maker) -> str:
    name = m.ranked(2)
    return f"{name}.transpose({m.dim(name)}, {m.dim(name)})"


@kind(2)
def permuted(m: Maker) -> str:
    name = m.ranked(2)
    order = list(range(m.of(name).dim()))
    m.random.shuffle(order)
    return f"{name}.permute({order})"


@kind(5)
def reshaped(m: Maker) -> str:
    name = m.any(lambda v: v.numel() > 0)
    return f"{name}.{m.one('reshape', 'reshape', 'view')}({m.shape(m.of(name).numel())})"


@kind(4)
def ranked_otherwise(m: Maker) -> str:
    name = m.any()
    return m.one(f"{name}.unsqueeze({m.dim(name)})", f"{name}.squeeze()", f"{name}.flatten()",
                 f"{name}.expand(2, {', '.join(['-1'] * m.of(name).dim())})", f"{name}.movedim(0, -1)")


@kind(3)
def part_of(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.split(2, {d})[-1]", f"{name}.chunk(2, {d})[0]", f"{name}.unbind({d})[0]",
                 f"{name}.unfold({d}, 2, 1)", f"{name}.diagonal()", f"{name}.narrow({d}, 1, 1)",
                 f"{name}.select({d}, 0)",
                 f"{name}.diagonal({m.one(-1, 1)}, 0, 1)")


# ---- moving --------------------------------------------------------------------------------------------------
@kind(5)
def moved(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.flip({d})", f"{name}.roll({m.one(1, -2)}, {d})", f"{name}.repeat_interleave(2, {d})",
                 f"{name}.tile(2)", f"{name}.clone()", f"{name}.contiguous()", f"{name}.tril({m.one(0, 1)})",
                 f"{name}.triu({m.one(0, -1)})", f"F.pad({name}, ({m.one(1, 0, -1)}, {m.one(2, 1)}), value=1)",
                 f"{name}.repeat({', '.join(['2'] * m.of(name).dim())})", f"{name}.rot90(1, (0, 1))")


@kind(4)
def joined(m: Maker) -> str:
    a, b = m.ranked(), m.ranked()
    return m.one(f"torch.cat([{a}, {b}], {m.dim(a)})", f"torch.stack([{a}, {a}], {m.dim(a)})",
                 f"torch.cat([{a}, {a} * 2], {m.dim(a)})", f"torch.cat([{a}, {a}.flip(0)[:1]])")


@kind(2)
def from_nothing(m: Maker) -> str:
    name = m.any()
    return m.one(f"torch.zeros_like({name})", f"torch.ones_like({name})", f"torch.full_like({name}, 2)",
                 "torch.arange(3)",
                 f"torch.arange({max(m.of(name).numel(), 1)}).view({name}.shape)", f"{name}.new_zeros((2, 3))",
                 "torch.eye(3)", "torch.tensor(2.5)")


# ---- reductions and scans --------------------------------------------------------------------------------------
@kind(9)
def reduced(m: Maker) -> str:
    name = m.any()
    return f"{name}.{m.one('sum', 'sum', 'mean', 'amax', 'amin', 'any', 'all', 'count_nonzero')}({m.dims(name)})"


@kind(4)
def reduced_over_one(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.max({d})[{m.one(0, 1)}]", f"{name}.min({d})[{m.one(0, 1)}]", f"{name}.argmax({d})",
                 f"{name}.argmin({d}, True)", f"{name}.prod({d})", f"{name}.argmax()", f"{name}.median({d})[0]",
                 f"{name}.sort({d}, stable=True)[{m.one(0, 1)}]", f"{name}.topk(1, {d})[0]")


@kind(4)
def statistics(m: Maker) -> str:
    name = m.float()
    d = m.dim(name)
    return m.one(f"{name}.softmax({d})", f"{name}.log_softmax({d})", f"{name}.var({m.dims(name)})",
                 f"{name}.logsumexp({d})", f"torch.var_mean({name}, {d}, correction=0)[{m.one(0, 1)}]",
                 f"{name}.norm(2, {d})", f"F.layer_norm({name}, {name}.shape[-1:])", f"F.normalize({name}, dim={d})",
                 f"F.mse_loss({name}, {name} * 0.5)")


@kind(4)
def scanned(m: Maker) -> str:
    name = m.ranked()
    return f"{name}.{m.one('cumsum', 'cumsum', 'cumprod', 'cumsum')}({m.dim(name)})"


# ---- indexing ------------------------------------------------------------------------------------------------
def positions(m: Maker) -> str:
    return m.any(lambda v: v.dtype is torch.int64 and v.dim() == 1 and 0 < v.numel() < 9)


@kind(6)
def looked_up(m: Maker) -> str:
    name, where = m.ranked(), positions(m)
    d = m.dim(name)
    return m.one(f"{name}[{where}]", f"{name}[:, {where}]", f"{name}.index_select({d}, {where}.abs())",
                 f"{name}[{where}, {where}]", f"{name}[..., {where}]", f"{name}[{where}, None]", f"{name}[0, {where}]",
                 f"{name}[{where}, :, {where}]", f"F.embedding({where}.abs(), {name})",
                 f"{name}.take_along_dim(torch.zeros_like({name}).long(), {d})",
                 f"{name}.gather({d}, torch.ones_like({name}).long().narrow({d}, 0, 1))")


@kind(4)
def scattered(m: Maker) -> str:
    name, where, value = m.ranked(), positions(m), m.any()
    d = m.dim(name)
    return m.one(f"{name}.index_add({d}, {where}.abs(), {name}.index_select({d}, {where}.abs()))",
                 f"{name}.scatter(0, torch.zeros_like({name}).long()[:1], {value})",
                 f"{name}.scatter_add({d}, torch.zeros_like({name}).long(), {name})",
                 f"{name}.index_put(({where},), {value}, accumulate=True)",
                 f"{name}.index_put(({where}[:1],), {value})", f"{name}.masked_fill({name} > 0, {m.number()})",
                 f"{name}.index_fill({d}, {where}.abs(), 1)",
                 f"torch.slice_scatter({name}, {name}[::2] * 2, 0, 0, None, 2)",
                 f"torch.select_scatter({name}, {name}[0] + 1, 0, -1)")


# ---- the library's -----------------------------------------------------------------------------------------------
@kind(3)
def product(m: Maker) -> str:
    a, b = m.float(), m.float()
    return m.one(f"{a} @ {b}", f"{a} @ {a}.mT", f"F.linear({a}, {a})", f"torch.outer({a}.flatten(), {b}.flatten())",
                 f"torch.einsum('...i,...i->...', {a}, {b})")


# ---- random numbers ----------------------------------------------------------------------------------------------
@kind(3)
def drawn(m: Maker) -> str:
    name = m.float()
    return m.one(f"torch.rand_like({name})", f"torch.randn_like({name})", f"F.dropout({name}, 0.4)",
                 f"torch.rand(2, 3, device={name}.device)",
                 f"torch.bernoulli({name}.sigmoid())", f"torch.randint_like({name}, 5)",
                 f"torch.randperm(3, device={name}.device)",
                 f"torch.normal({name}, 1.0)", f"{name}.clone().uniform_(-1, 1)", f"{name} + {name}.clone().normal_()")


# ---- changes in place ------------------------------------------------------------------------------------------
@kind(12)
def changed(m: Maker) -> str:
    name, value = m.any(), m.any()
    where = f"{name}[{m.part(name)}]" if m.of(name).dim() and m.random.random() < 0.6 else name
    return m.one(f"{where}.add_({value})", f"{where}.mul_({m.number()})", f"{where}.copy_({value})", f"{where}.zero_()",
                 f"{where}.fill_({m.number()})", f"{where}.relu_()", f"{where}.sub_({where})", f"{where}.clamp_(-1, 1)",
                 f"{where}.masked_fill_({where} < 0, 2)", f"{where}.t_()", f"{where}.add_({where}.flip(0))",
                 f"{where}.copy_({name}.sum())", f"{where}.unsqueeze_(0)")


@kind(2)
def changed_where(m: Maker) -> str:
    name, where, value = m.ranked(), positions(m), m.any()
    return m.one(f"{name}.index_put_(({where},), {value}, accumulate=True)", f"{name}.index_fill_(0, {where}.abs(), 1)",
                 f"{name}.index_add_(0, {where}.abs(), {name}.index_select(0, {where}.abs()))",
                 f"{name}.scatter_(0, torch.zeros_like({name}).long()[:1], 1)")


def programs(count: int, seed: int) -> Iterator[Program]:
    for n in range(count):
        yield Maker(seed * 1_000_003 + n).make()
