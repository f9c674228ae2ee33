"""Classes of torch._dynamo: that of modules that torch.compile returns (libraries look for it, and unwrap it by
``_orig_mod``), and the mode of indices in flex_attention.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch


@functools.cache
def compiled_module_class() -> type[torch.nn.Module]:
    """A subclass of torch's OptimizedModule. Its ``dynamo_ctx`` makes what is called in place of the module."""
    base: Any = import_module("torch._dynamo.eval_frame").OptimizedModule

    class CompiledModule(base):
        """A module and what sot.compile made of it: attributes, state and training mode are the module's."""

        # torch's own sets a flag around the call, which only its own capture reads.
        __call__ = torch.nn.Module.__call__

        def _initialize(self) -> None:
            self.forward = self.dynamo_ctx(self._orig_mod)
            self.get_compiler_config: Any = functools.partial(dict, self.dynamo_ctx.config)

        def __reduce__(self) -> Any:
            return compiled_module, (self._orig_mod, self.dynamo_ctx)

    CompiledModule.__name__ = CompiledModule.__qualname__ = "OptimizedModule"     # also the name in its repr
    return CompiledModule


def compiled_module(module: torch.nn.Module, context: Callable[[torch.nn.Module], Callable[..., Any]]) -> Any:
    """The class that represents a compiled module."""
    return compiled_module_class()(module, context)


def is_compiled_module(value: object) -> bool:
    """Whether torch.compile or sot.compile has returned it for a module."""
    return isinstance(value, torch.nn.Module) and any(cls.__module__ == "torch._dynamo.eval_frame"
                                                      for cls in type(value).__mro__)


def inside(target: Any) -> Any:
    """The module that a user has compiled with torch.compile or sot.compile."""
    while True:
        if is_compiled_module(target):
            target = target._orig_mod
        elif getattr(target, "_torchdynamo_wrapper_id", None) == id(target) and not getattr(
                target, "_torchdynamo_disable", False):
            target = target._torchdynamo_orig_callable
        else:
            return target


def indexing() -> Any:
    """The mode in which ``x[i]`` with 0-d tensors is an operation that reads no value, as in functions of
    flex_attention.
    """
    return import_module("torch._dynamo._trace_wrapped_higher_order_op").TransformGetItemToIndex()
