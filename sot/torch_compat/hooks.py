"""Hooks: on modules, on tensors, on tensors that autograd saves."""
from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch.utils.checkpoint import SAC_IGNORED_OPS, CheckpointPolicy, SelectiveCheckpointContext
from torch.utils.hooks import RemovableHandle


def take_hook_id() -> int:
    """The number that the next handle of a hook will get."""
    taken = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return taken


def take_back(handle: RemovableHandle) -> None:
    """Remove a hook as if it had never been added: the next one gets its number, if there was none since."""
    handle.remove()
    if handle.id == RemovableHandle.next_id - 1:
        RemovableHandle.next_id = handle.id


# Of Python, between the caller of torch.autograd.backward and a hook.
FRAMES_OF_BACKWARD = 2 if hasattr(torch.autograd.graph, "_engine_run_backward") else 1


@contextlib.contextmanager
def no_hook_ids_taken() -> Iterator[None]:
    """Hooks that capture itself adds inside take no numbers from those of the program."""
    before = RemovableHandle.next_id
    try:
        yield
    finally:
        RemovableHandle.next_id = before


# Names in torch.nn.modules.module: the hooks that are called for every module.
GLOBAL_HOOKS = tuple(name for name in vars(torch.nn.modules.module) if re.match("_global_(forward|backward)_", name))


CALL_OF_MODULE = torch.nn.Module._call_impl.__code__


def calls_after_exceptions(module: Any) -> bool:
    """Whether the call of a module has hooks that run even if the forward pass raises."""
    of_all = getattr(torch.nn.modules.module, "_global_forward_hooks_always_called", ())
    return bool(of_all or module._forward_hooks_always_called)


def is_users_stop(error: Exception) -> bool:
    """Whether a hook on saved tensors raised it, as torch.utils.checkpoint does when it has recomputed enough."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and not isinstance(error, (RuntimeError, IndexError, ValueError))


# The hooks that the program has on the tensors that autograd saves, and the answer that there are none.
NO_SAVED_TENSORS_HOOKS = functools.partial(torch._C._autograd._top_saved_tensors_default_hooks, True), None


def has_saved_tensors_hooks() -> bool:
    """Whether the program has hooks on the tensors that autograd saves, as torch.utils.checkpoint does."""
    return NO_SAVED_TENSORS_HOOKS[0]() is not None


def saving_policy(contexts: tuple[Any, Any]) -> Callable[..., bool] | None:
    """The policy of a pair of contexts that ``create_selective_checkpoint_contexts`` has made; None for another pair.

    It takes an operation, its arguments, keyword arguments and results, and says whether the results are saved.
    """
    policy = getattr(contexts[0], "policy_fn", None)
    if policy is None:
        return None

    def saves(operation: Any, args: tuple, kwargs: dict[str, Any], results: Any) -> bool:
        if operation in SAC_IGNORED_OPS:
            return False
        told = SelectiveCheckpointContext(is_recompute=False)
        told.op_output = results
        chosen = policy(told, operation, *args, **kwargs)
        return chosen in (True, CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
    return saves


@contextlib.contextmanager
def no_saved_tensors_hooks() -> Iterator[list[tuple[Any, Any]]]:
    """Hide the tensors that autograd saves inside from the program's hooks on them. Gives the pairs of hooks."""
    c, hooks = torch._C._autograd, []
    while (top := c._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        c._pop_saved_tensors_default_hooks()
    try:
        yield hooks
    finally:
        for pair in reversed(hooks):
            c._push_saved_tensors_default_hooks(*pair)


class Pushed(threading.local):
    """How many pairs of hooks on saved tensors graphs have pushed, and not popped, in this thread."""

    count = 0


pushed = Pushed()


def pushing_saved_tensors_hooks(pack: Callable[..., Any], unpack: Callable[..., Any]) -> Callable[[], None]:
    """A target of a node, so that the printed graph refers to the hooks by name."""
    def push() -> None:
        torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
        pushed.count += 1
    push.__name__ = push.__qualname__ = "push_saved_tensors_hooks"
    push.hooks = pack, unpack   # type: ignore[attr-defined]
    return push


def is_pushing(setter: Callable[..., Any]) -> bool:
    return hasattr(setter, "hooks")


def pop_saved_tensors_hooks() -> None:
    torch._C._autograd._pop_saved_tensors_default_hooks()
    pushed.count -= 1


def count_pushed() -> int:
    return pushed.count


def pop_pushed(count: int) -> None:
    """Pop what a graph that has failed has pushed."""
    while pushed.count > count:
        pop_saved_tensors_hooks()


def module_tagger() -> Any:
    """The bookkeeping function that every new module calls, once torch.compile has been used."""
    # a second to import, so only when needed
    return import_module("torch._dynamo.mutation_guard").GenerationTracker.tag.__func__


def refuse_saved_tensors_hooks(message: str | None) -> None:
    """Raise an error for hooks on the tensors that autograd saves, from now on. None: no longer."""
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(message)
