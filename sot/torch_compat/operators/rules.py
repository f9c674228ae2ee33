"""Fixes errors in torch's rules for operators, which fake tensors and compilers use.

Several tables of torch hold each function, so the function itself gets new code, which calls the old one.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch._decomp.decompositions import huber_loss_backward, mse_loss_backward, smooth_l1_loss_backward
from torch._functorch import compile_utils
from torch._meta_registrations import meta_embedding_bag_backward
from torch._ops import OpOverloadPacket
from torch._refs.linalg import vector_norm

ORIGINAL = "_rule_as_it_was_of_"


def fix() -> None:
    """Fix the rules that have errors. To run them would import Dynamo, which takes over a second, so code is read."""
    if "canonicalize_dims" not in inspect.unwrap(vector_norm).__code__.co_names:    # torch 2.11
        replace(vector_norm, counting_from_the_start)
    for rule in (huber_loss_backward, mse_loss_backward, smooth_l1_loss_backward):
        replace(rule, without_division_by_zero)
    replace(meta_embedding_bag_backward, with_a_bag_of_each_index)
    if not isinstance(compile_utils.rand_ops, Draws):
        compile_utils.rand_ops = Draws(compile_utils.rand_ops)


class Draws(list[Any]):
    """torch's list of operators that draw random numbers, with those that it lacks (``randn_like``, ``normal``).
    AOTAutograd makes equal calls of any other operator one call.
    """

    def __contains__(self, target: object) -> bool:
        return super().__contains__(target) or draws(target)


@functools.cache
def draws(target: Any) -> bool:
    return isinstance(target, OpOverloadPacket) and any(
        torch.Tag.nondeterministic_seeded in getattr(target, name).tags for name in target.overloads())


def replace(rule: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Give a rule the code of ``new``, in which ``original`` is the rule as it was."""
    inner: Any = inspect.unwrap(rule)
    name = ORIGINAL + inner.__name__
    if name in inner.__globals__:
        return
    original = FunctionType(inner.__code__, inner.__globals__, inner.__name__, inner.__defaults__)
    original.__kwdefaults__ = inner.__kwdefaults__
    inner.__globals__[name] = original
    code = new.__code__
    inner.__code__ = code.replace(co_names=tuple(name if n == "original" else n for n in code.co_names))


def counting_from_the_start(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The rule keeps an axis of size 1 that is counted from the end."""
    axes = dim if dim is None else utils.canonicalize_dims(x.ndim, dim)     # type: ignore[name-defined] # noqa: F821
    return original(x, ord, axes, keepdim, dtype=dtype)     # type: ignore[name-defined] # noqa: F821


def without_division_by_zero(*args):
    """The rule divides by the number of elements, also if there are none. Then the gradient of their mean is that of
    their sum. A symbol is not asked: it stands for two and more, or its value is not known.
    """
    count = args[1].numel()
    if type(count) is int and count == 0:
        args = (*args[:3], 2, *args[4:])    # the reduction: a sum
    return original(*args)      # type: ignore[name-defined] # noqa: F821


def with_a_bag_of_each_index(*args):
    """The forward pass may keep no bags. The kernel computes one for each index then, but the rule takes none."""
    count = args[3].shape[0]
    if type(count) is int and count == 0:
        args = (*args[:3], args[1], *args[4:])
    return original(*args)      # type: ignore[name-defined] # noqa: F821
