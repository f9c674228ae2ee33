"""What is around a program of the fuzzer: what its arguments are, and what others change between its calls."""
from __future__ import annotations

import builtins
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from torch.utils.hooks import RemovableHandle

from . import look_alikes

Tensor = torch.Tensor


def with_odd_values(x: Tensor) -> Tensor:
    x[0], x[-1] = -0.0, float("nan")
    return x


# What the first argument is, made of a plain vector.
INPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "view": lambda x: x.view(1, -1)[0],
    "offset": lambda x: torch.cat([x[:1], x])[1:],
    "strided": lambda x: torch.stack([x, x + 1], 1)[:, 0],
    "leaf": lambda x: x.requires_grad_(),
    "nonleaf": lambda x: x.requires_grad_() * 1,
    "nonleaf of another operation": lambda x: x.requires_grad_().sin(),
    "second output": lambda x: torch.cat([x, x]).requires_grad_().split(x.shape[0])[1],
    "retains": lambda x: retaining(x.requires_grad_() + 0),
    "parameter": lambda x: torch.nn.Parameter(x),
    "odd": with_odd_values,
    "double": lambda x: x.double(),
    "int": lambda x: x.long(),
    "complex": lambda x: torch.complex(x, -x),
    "conjugate": lambda x: torch.complex(x, x).conj(),
    "negative view": lambda x: torch.complex(x, x).conj().imag,
    "expanded": lambda x: x[:1].expand(x.shape[0]),
}


def retaining(x: Tensor) -> Tensor:
    x.retain_grad()
    return x


# What the numbers, the text and the containers are, made of plain ones in the module of the program.
NUMBERS: dict[str, Callable[[dict, tuple], tuple]] = {
    "plain": lambda m, a: a,
    "own classes": lambda m, a: (m["Number"](a[0]), m["Word"](a[1]), a[2], m["Items"](a[3]), m["Options"](**a[4])),
    "enums": lambda m, a: (m["Level"](a[0] % 3), m["Kind"].A.name, a[2], a[3], dict(a[4])),
    "signs": lambda m, a: (a[0], a[1], -0.0 if a[2] > 0 else 0.0, a[3], a[4]),
    "not a number": lambda m, a: (a[0], a[1], float("nan") if a[2] < 1 else math.inf, a[3], a[4]),
    "bools": lambda m, a: (a[0] > 3, a[1], a[2], a[3], m["collections"].defaultdict(int, a[4])),
    "large": lambda m, a: (a[0] << 70, a[1] * 3, a[2] * 1e300, a[3], m["collections"].OrderedDict(a[4])),
}

# Text that the module of each run executes between two calls; `patch` is for what all modules share.
CHANGES_BETWEEN = (
    "LIMIT += 2", "Base.total = lambda self, n: n - self.n", "Box.keep = staticmethod(lambda n: n + 1)",
    "Base.__len__ = lambda self: 2", "STATE.n = 3", "CACHE.clear(); CACHE['k'] = 2", "net.eval()", "net.calls = 7",
    "net.register_forward_hook(lambda m, i, o: o + 1)", "net.register_forward_pre_hook(lambda m, i: (i[0] * 2,))",
    "net.scale.requires_grad_(False)", "net.seen = torch.ones(())", "net.scale = torch.nn.Parameter(torch.tensor(2.0))",
    "del net.seen; net.seen = 3", "net.forward = lambda x: x - 1", "net.__class__ = type('Other', (Net,), {})",
    "bump = lambda: 7", "bump.__code__ = (lambda: 5).__code__", "len = lambda v: 1", "gen_sum = sum",
    "Kind = enum.Enum('Kind', {'A': 3, 'B': 4})", "Base.made_count = 5", "math = types.SimpleNamespace(**vars(math)); "
    "math.floor = lambda v: 3", "defaulted.__defaults__ = (5,)", "keyworded.__kwdefaults__ = {'extra': 9}",
    "Described.__set__ = lambda self, owner, value: None; described.__dict__['part'] = 8",
    "Described.__get__ = lambda self, owner, kind=None: 4", "del Base.__bool__",
    "Base.__eq__ = lambda self, other: True",
    "STATE.__class__ = Base", "helper.__code__ = (lambda n, x: (n, x * 2)).__code__", "square = torch.abs",
    "Custom = type('Custom', (KeyError,), {})", "opt.param_groups[0]['lr'] = 0.5",
    "opt.param_groups[0]['momentum'] = 0",
    "Tagged.__torch_function__ = torch._C._disabled_torch_function_impl", "segment = torch.sin",
    "patch(random, 'randrange', lambda n: 2)", "patch(math, 'sqrt', lambda v: 0.25)",
    "patch(bisect, 'bisect', lambda *a: 1)",
    "patch(math, 'copysign', lambda *a: 3.0)", "patch(torch, 'relu', lambda input: input.clamp(min=1))",
    "patch(F, 'dropout', lambda v, p: v * 2)", "patch(time, 'time', lambda: -1.0)", "patch(copy, 'copy', lambda v: v)",
    "patch(itertools, 'count', lambda n: iter(range(5)))", "patch(torch.special, 'expit', lambda v: v)",
    "patch(sys.modules, 'operator', types.SimpleNamespace(sub=lambda p, q: 1, add=lambda p, q: 2))",
    "patch(torch.Tensor, 'mul', lambda self, v: self - v)", "patch(dataclasses, 'replace', lambda v, **rest: v)",
    "state(torch.set_default_dtype, torch.float64)", "state(torch.set_grad_enabled, False)",
    "state(torch.set_autocast_enabled, 'cpu', True)", "logger.setLevel(logging.ERROR)", *look_alikes.CHANGES_BETWEEN,
)


class World:
    """Makes changes, and takes back those that all modules share."""

    def __init__(self) -> None:
        self.patches: list[Any] = []
        self.states: list[tuple] = []

    def change(self, text: str, *namespaces: dict) -> None:
        """Execute the text in each module; what it patches or sets is done once."""
        for i, namespace in enumerate(namespaces):
            namespace["patch"] = self.patch if i == 0 else lambda *_: None
            namespace["state"] = (lambda *call: self.states.append(call)) if i == 0 else lambda *_: None
            with hooks_of(namespace), suppress(Exception):      # the program may have changed it, too
                exec(text, namespace)
            for name in ("patch", "state"):
                del namespace[name]

    def patch(self, owner: Any, name: str, value: Any) -> None:
        if owner is builtins:
            raise ValueError(name)

        change = (mock.patch.dict(owner, {name: value}) if isinstance(owner, dict)
                  else mock.patch.object(owner, name, value))
        self.patches.append(change)

    @contextmanager
    def around(self) -> Iterator[None]:
        """The world as it has been changed, while a program is called."""
        for function, *values in self.states:
            function(*values)
        for change in self.patches:
            change.start()
        try:
            yield
        finally:
            for change in reversed(self.patches):
                change.stop()
            reset_torch()


@contextmanager
def hooks_of(namespace: dict) -> Iterator[None]:
    """Torch numbers all hooks of a process; here each module's are numbered apart."""
    RemovableHandle.next_id = namespace.setdefault("HOOKS", 0)
    try:
        yield
    finally:
        namespace["HOOKS"] = RemovableHandle.next_id


def reset_torch() -> None:
    """What programs and changes set of torch's global state, as it is at first."""
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)
    torch._C._set_mkldnn_enabled(True)


def seed(number: int) -> None:
    random.seed(number)
    torch.default_generator.manual_seed(number)
