"""sot.compile: torch.compile with SOT as its front end."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeVar, overload

import torch

from sot.backends import Backend
from sot.driver.suspending import can_be_cut, is_suspending
from sot.frontend.api import StaticFunction, TargetError, original
from sot.frontend.drop_in.arguments import Arguments
from sot.frontend.drop_in.compiled import (
    CompiledForward,
    CompiledFunction,
    forget_compiled,
    refuse_stance,
    stance_changed,
)
from sot.support.tracebacks import public
from sot.support.user_annotations import is_not_to_static
from sot.torch_compat.dynamo import state
from sot.torch_compat.dynamo.modules import compiled_module, inside

F = TypeVar("F")
state.loaded()      # now, because the collector is off while this package is imported


@overload
def compile(model: None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | Backend | None = None, mode: str | None = None, options: Mapping[str, Any] | None = None,
            name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
            isolate_recompiles: bool = False, shapes_spec: Any = None,
            dynamic_shapes: Any = None) -> Callable[[F], F]: ...
@overload
def compile(model: F, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | Backend | None = None, mode: str | None = None, options: Mapping[str, Any] | None = None,
            name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
            isolate_recompiles: bool = False, shapes_spec: Any = None,
            dynamic_shapes: Any = None) -> F: ...
@public(hint="The settings are keyword arguments: compile(f, fullgraph=True)")
def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | Backend | None = None, mode: str | None = None, options: Mapping[str, Any] | None = None,
            name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
            isolate_recompiles: bool = False, shapes_spec: Any = None,
            dynamic_shapes: Any = None) -> Any:
    """Compile a function or a module as torch.compile does. A decorator, with or without arguments.

    Arguments:
        model: a function, method or other callable: returns a callable to use in its place. A torch.nn.Module: returns
            an ``OptimizedModule`` with the module as ``_orig_mod``; the module itself does not change. A class of
            modules, or of callable objects: returns it, with its instances' calls compiled.
        fullgraph: raise CaptureError at a graph break.
        dynamic: as for to_static. None, True and False have the same meaning as for torch.compile.
        backend: a name from ``list_backends()``, or a function. None is "inductor", or the backend that
            torch.compiler.set_default_backend has set.
        mode, options: options of the backend; at most one of them.
        name: its name in reports.
        disable: leave everything to Python: returns ``model``.
        recompile_limit: how often one function may be compiled. None means torch._dynamo.config and SOT_ENTRIES.
        isolate_recompiles: has no effect. Each call of compile keeps its own compiled code.
        shapes_spec, dynamic_shapes: refused. The second is torch 2.15's name of the first.

    Raises TargetError (a TypeError) for a model that cannot be compiled, UnknownBackendError, OptionsError or another
    BackendError for the backend, NotPossibleError for what SOT does not support.
    """
    arguments = Arguments(fullgraph, dynamic, backend, mode, options, name, disable, recompile_limit,
                          isolate_recompiles, shapes_spec, dynamic_shapes)
    if model is None:
        return functools.partial(compiled, arguments=arguments)
    return compiled(model, arguments=arguments)


@public()
def compiled(model: Any, *, arguments: Arguments) -> Any:
    """The compiled function, method, module or class. Raises TargetError."""
    if not callable(model):
        original(model, "compile")      # this raises for an invalid model
    if arguments.is_disabled:
        return model
    state.tell(refuse_stance, stance_changed, forget_compiled)
    model = inside(model)
    if isinstance(model, torch.nn.Module):
        if isinstance(model, torch.jit.ScriptModule):
            raise TargetError(f"compile was given a {type(model).__qualname__}: TorchScript has compiled it already")
        return compiled_module(model, Context(arguments))
    if isinstance(model, type):
        return compiled_class(model, arguments)
    if (module := module_called_by(model)) is not None:
        return CompiledForward(module, arguments)
    if is_suspending(model) and not can_be_cut(model):
        return model    # Python runs it, as with torch.compile
    return CompiledFunction(original(model, "compile"), arguments)


def module_called_by(method: Any) -> torch.nn.Module | None:
    """The module, if the method is its call, as Module.compile passes it."""
    if type(method) is not MethodType or method.__func__ is not torch.nn.Module._call_impl:
        return None
    module: Any = method.__self__
    return None if is_not_to_static(module) else module


@dataclass(frozen=True)
class Context:
    """Makes the callable of an OptimizedModule, which replaces that of its module."""

    arguments: Arguments

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.arguments.options or {})

    def __call__(self, module: torch.nn.Module) -> Callable[..., Any]:
        if type(module).__call__ is torch.nn.Module.__call__ and not is_not_to_static(module):
            return CompiledForward(module, self.arguments)
        return CompiledFunction(module.__call__, self.arguments)


def compiled_class(cls: Any, arguments: Arguments) -> type:
    """A class whose instances are compiled when they are called."""
    call = inspect.getattr_static(cls, "__call__", None)
    if issubclass(cls, torch.nn.Module) and cls.forward is not torch.nn.Module.forward:
        cls.forward = CompiledFunction(original(cls.forward, "compile"), arguments)
    elif call is not None and not isinstance(cls, torch.nn.Module):
        wrapped = call.__wrapped__ if isinstance(call, StaticFunction) else call
        cls.__call__ = CompiledFunction(original(wrapped, "compile"), arguments)
    else:
        raise TargetError(f"compile was given the class {cls.__qualname__}, whose objects cannot be called")
    return cls
