"""The guard on an instance of a wrapper subclass of Tensor: its class, its context, and the tensors inside of it."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from sot._hook import plain
from sot.guards.guards import Guard
from sot.guards.origin import Emit, immutable
from sot.torch_compat.subclasses.wrappers import flatten, inner_tensors, is_wrapper, other_attributes, plain_parts
from sot.torch_compat.tensors import TensorChecks, tensor_summary, without_subclasses


def same(a: Any, b: Any) -> bool:
    """Whether two contexts are equal. That of another class is not, even if it says so."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(held, b[key]) for key, held in a.items())
    return a is b or bool(a == b)


def facts(wrapper: torch.Tensor) -> tuple:
    """What torch itself keeps for an instance. Of a size that no int has, only the place counts."""
    sizes = tuple(size if type(size) is int else None for size in wrapper.shape)
    return wrapper.dtype, wrapper.device, wrapper.layout, wrapper.requires_grad, sizes


def first_places(wrapper: torch.Tensor) -> list[int]:
    """Which of the inner tensors are the same object."""
    ids = [id(part) for part in plain_parts(wrapper)]
    return [ids.index(found) for found in ids]


class Form:
    """All that capture relies on of one instance."""

    def __init__(self, example: torch.Tensor) -> None:
        self.kind = type(example)
        self.facts, self.flat, self.others = facts(example), flatten(example), other_attributes(example)
        self.places = first_places(example)
        self.parts = [Form(part) if is_wrapper(part) else TensorChecks([part]) for _, part in inner_tensors(example)]

    def check(self, value: Any) -> bool:
        if type(value) is not self.kind:
            return False
        return (facts(value) == self.facts and same(flatten(value), self.flat)
                and same(other_attributes(value), self.others) and first_places(value) == self.places
                and all(form.check(part) for form, (_, part) in zip(self.parts, inner_tensors(value), strict=True)))


def matches(value: Any, form: Form) -> bool:
    """Whether an instance has this form. Code of its class that raises says no."""
    try:
        with without_subclasses():
            return form.check(value)
    except Exception:  # noqa: BLE001 - the value may be anything
        return False


MATCHES = plain(matches)


@immutable
class WrapperGuard(Guard):
    """An instance has this class, this context, and inner tensors of these dtypes, shapes and so on."""

    form: Form

    @staticmethod
    def form_of(example: torch.Tensor) -> Form:
        with without_subclasses():
            return Form(example)

    def test(self, emit: Emit) -> str:
        return f"{emit.const(MATCHES)}({emit.ref(self.origin)}, {emit.const(self.form)})"

    def holds(self, value: object) -> bool:
        return matches(value, self.form)

    def seen(self, value: object) -> str:
        if type(value) is not self.form.kind:
            return f"an object of class {type(value).__qualname__}"
        assert isinstance(value, torch.Tensor)
        return f"{tensor_summary(value)} that holds {', '.join(shown(value))}"

    def __str__(self) -> str:
        return f"{self.origin} is an instance of {self.form.kind.__qualname__} like the captured one"

    def __hash__(self) -> int:
        return hash(self.origin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrapperGuard) and self.origin == other.origin


def shown(wrapper: torch.Tensor) -> Iterator[str]:
    with without_subclasses():
        for name, part in inner_tensors(wrapper):
            yield f"{name}: {tensor_summary(part)}"
