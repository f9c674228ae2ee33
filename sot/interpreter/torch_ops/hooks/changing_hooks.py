"""Hooks on saved tensors that were there before a capture, and change what the captured function reads.

Autograd calls them while the graph runs. Python code of the frame reads lists, dicts and objects before the graph runs,
so it would read them as they were before.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from sot.bytecode import decode
from sot.guards.origin import Inputs
from sot.interpreter.objects.names_used import LEAVES, ends_of, may_reach, names_used
from sot.support.places import is_of_library
from sot.torch_compat.hooks import no_saved_tensors_hooks

LEVELS, OBJECTS = 2, 2000       # how far, and how many objects are looked at from what a function looks up
UNCHANGED = (*LEAVES, torch.Tensor, FunctionType, ModuleType, type, type(None), torch.dtype, torch.device)


def may_change_what_is_read(function: FunctionType, inputs: Inputs) -> bool:
    """Whether hooks of the program may change an object that the function can look up, or a global."""
    with no_saved_tensors_hooks() as pairs:
        hooks = [hook for pair in pairs for hook in pair if not is_of_torch(hook)]
    return bool(hooks) and (any(sets_globals(hook, function) for hook in hooks) or may_reach(
        hooks, islice(looked_up(function, inputs), OBJECTS)))


def is_of_torch(hook: Any) -> bool:
    """Whether a library has the hook, as that of a checkpoint."""
    function = hook.__func__ if type(hook) is MethodType else hook
    return type(function) is FunctionType and is_of_library(function.__code__.co_filename)


def sets_globals(hook: Any, function: FunctionType) -> bool:
    return type(hook) is FunctionType and hook.__globals__ is function.__globals__ and any(
        instr.op in ("STORE_GLOBAL", "DELETE_GLOBAL") for instr in decode(hook.__code__).instrs)


def looked_up(function: FunctionType, inputs: Inputs) -> Iterator[Any]:
    """The objects that can change, among the arguments, variables and globals of a function and their parts."""
    found = [*inputs, *(o for path in names_used(function.__code__) for o in ends_of(function.__globals__, path))]
    for _ in range(LEVELS):
        found = [held for held in found if not isinstance(held, UNCHANGED)]
        yield from found
        found = gc.get_referents(*found[:OBJECTS])
    yield from (held for held in found if not isinstance(held, UNCHANGED))
