"""Everything a program can see of values, as lines of text to compare: types, contents, which are one object."""
from __future__ import annotations

import re
import traceback
import types
from collections.abc import Iterator
from typing import Any

import torch

PROGRAM = "<program>"      # the name of the file that programs are in

ATOMS = (int, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.Size)
NATIVE_STACK = re.compile(r"\nException raised from .*", re.DOTALL)     # the stack of C++ in a message
SEQUENCES = (list, tuple, set, frozenset)


class Picture:
    """One walk over values: an object met again is shown as the place where it was met first."""

    def __init__(self) -> None:
        self.seen: dict[int, str] = {}
        self.storages: dict[int, str] = {}
        self.kept: list[Any] = []       # so that no two objects met have one address

    def lines(self, path: str, value: Any) -> Iterator[str]:
        if isinstance(value, ATOMS):
            shown = NATIVE_STACK.sub("", value) if type(value) is str else value
            yield f"{path} = {type(value).__name__} {shown!r}"
        elif isinstance(value, (types.ModuleType, types.BuiltinFunctionType)):
            yield f"{path} = {value.__name__}"
        elif id(value) in self.seen:
            yield f"{path} is {self.seen[id(value)]}"
        else:
            self.seen[id(value)] = path
            self.kept.append(value)
            yield from self.object_lines(path, value)

    def object_lines(self, path: str, value: Any) -> Iterator[str]:
        kind = f"{path}: {type(value).__qualname__}"
        if isinstance(value, torch.Tensor):
            yield f"{kind} {self.tensor(path, value)}"
            yield from self.lines(f"{path}.grad", value.grad if is_leaf(value) else None)
        elif isinstance(value, type):
            yield f"{path} = class {value.__qualname__}"
            public = {k: v for k, v in vars(value).items() if isinstance(v, ATOMS) and k[:2] != "__"}
            yield from self.parts(path, public)
        elif isinstance(value, BaseException):
            yield from self.exception(kind, path, value)
        elif isinstance(value, types.FunctionType):
            yield f"{kind} {value.__qualname__}"
            cells = {n: cell_contents(c) for n, c in zip(value.__code__.co_freevars, value.__closure__ or ())}
            yield from self.parts(path, {**cells, "defaults": value.__defaults__, "kwdefaults": value.__kwdefaults__})
        elif isinstance(value, types.GeneratorType):
            yield f"{kind} {value.__qualname__} {'done' if value.gi_frame is None else 'suspended'}"
        elif isinstance(value, dict):
            yield f"{kind} {[*value]!r:.200}" if all(isinstance(k, ATOMS) for k in value) else kind
            yield from self.parts(path, value)
        elif isinstance(value, SEQUENCES):
            yield f"{kind} {len(value)}"
            in_order = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            yield from self.parts(path, dict(enumerate(in_order)))
        elif hasattr(value, "__dict__"):
            yield kind
            yield from self.parts(path, vars(value))
        else:
            yield kind
            yield from self.iterator(path, value)

    def parts(self, path: str, parts: dict) -> Iterator[str]:
        for key, part in parts.items():
            yield from self.lines(f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r:.40}]", part)

    def iterator(self, path: str, value: Any) -> Iterator[str]:
        try:
            _, *state = value.__reduce__()
        except TypeError:
            return
        yield from self.lines(f"{path}.state", state)

    def tensor(self, path: str, t: torch.Tensor) -> str:
        storage = self.storages.setdefault(t.untyped_storage().data_ptr() or -len(self.storages), path)
        self.kept.append(t.untyped_storage())
        layout = f"{t.dtype} {[*t.shape]} {t.stride()} at {t.storage_offset()} of {storage} {t.detach().tolist()!r}"
        try:
            version = None if t.is_inference() else t._version
            history = f"leaf={is_leaf(t)} {getattr(t.grad_fn, 'name', str)()}"
            return f"{layout} version={version} requires_grad={t.requires_grad} {history}"
        except RuntimeError as e:
            return f"{layout} {e}"

    def exception(self, kind: str, path: str, e: BaseException) -> Iterator[str]:
        """A cell without a value is a local variable to Python and a free one to the rest of a function after a break:
        it raises UnboundLocalError or its base NameError, and says so."""
        if isinstance(e, NameError):
            yield f"{path}: NameError"
            return
        yield kind
        yield from self.parts(path, {"args": e.args, "str": str(e), "cause": e.__cause__, "context": e.__context__,
                                     "suppress": e.__suppress_context__, **vars(e)})
        frames = traceback.extract_tb(e.__traceback__)
        names = dict.fromkeys(frame.name for frame in frames if frame.filename == PROGRAM)
        yield f"{path}.traceback = {[*names]}"


def cell_contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "(empty)"


def difference(plain: list[str], translated: list[str]) -> str | None:
    """The first line in which two pictures differ."""
    for want, got in zip(plain, translated):
        if want != got:
            return f"plain:      {want}\ntranslated: {got}"
    if len(plain) != len(translated):
        longer = max(plain, translated, key=len)
        return f"only {'plain' if longer is plain else 'translated'}: {longer[min(len(plain), len(translated))]}"
    return None


def is_leaf(t: torch.Tensor) -> bool:
    """Torch refuses to say for a view from ``no_grad`` whose base was changed by an operation with gradients."""
    try:
        return t.is_leaf
    except RuntimeError:
        return False
