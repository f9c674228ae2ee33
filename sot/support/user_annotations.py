"""Objects and names by which a user tells capture what to inline, where to break and what to ignore.

The interpreter reads five things here:

* a ``Translated`` is inlined as its ``__wrapped__``;
* a function for which ``is_not_to_static`` is true is a break: Python calls it, with the hook off;
* ``graph_break`` and ``observed``, by identity, are breaks at their call;
* the dimensions of a tensor that ``mark_dynamic`` names are symbolic;
* Python calls functions of a module for which ``is_ignored`` is true.

This file is below the rest of the package: it imports only the standard library, the hook and ``lookups``.
"""
from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import ref

from sot import _hook
from sot.support.lookups import own_dict

MARK = "_sot_dynamic_dims"      # an attribute of tensors
IGNORED_MODULES: set[str] = set()
ROOTS: dict[int, CodeType] = {}     # code of tests, by its id: what runs it is not captured together with it
NO_BINDING = (MethodType, staticmethod, classmethod)
SEEN_THROUGH = (FunctionType, MethodType)


# ---- objects in the place of a function -----------------------------------------------------------------
class Wrapper(_hook.Binding):
    """A callable in place of ``__wrapped__``: same name, signature, attributes, and binding to instances.

    In a class body it makes methods as a function does. Missing attributes are looked up in the wrapped callable. A
    copy is the wrapper of a copy; for a function that is this object itself. The wrapper of a function is pickled by
    name.

    ``isinstance`` accepts it as a function or method if it wraps one. So inspect and torch's compilers read the code
    of the wrapped function.
    """

    __slots__ = ("__wrapped__", "__dict__", "__weakref__")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._binds = hasattr(type(fn), "__get__") and not isinstance(fn, NO_BINDING)
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property   # type: ignore[misc]
    def __class__(self) -> type:
        kind = type(self.__wrapped__)
        return kind if kind in SEEN_THROUGH else type(self)

    def __getattr__(self, name: str) -> Any:
        if name in Wrapper.__slots__:  # not initialised yet, so there is nothing to look up
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def again(self, fn: Callable[..., Any]) -> Wrapper:
        """A wrapper of the same kind for another function."""
        return type(self)(fn)

    def __copy__(self) -> Wrapper:
        return self

    def __deepcopy__(self, memo: dict) -> Wrapper:
        fn = copy.deepcopy(self.__wrapped__, memo)
        return self if fn is self.__wrapped__ else self.again(fn)

    def __reduce__(self) -> Any:
        if isinstance(self.__wrapped__, FunctionType) and self._has_its_name():
            return self.__wrapped__.__qualname__
        return type(self), (self.__wrapped__,)

    def _has_its_name(self) -> bool:
        """Whether it is what its module has under the name of the function. ``g = to_static(f)`` is not."""
        found: Any = sys.modules.get(self.__wrapped__.__module__)
        for name in self.__wrapped__.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {name_of(self.__wrapped__)}>"


class Translated(Wrapper):
    """Base of callables that run ``__wrapped__`` under a translator. Capture inlines ``__wrapped__``."""

    __slots__ = ()


class NotToStatic(Wrapper):
    """Calls the wrapped callable with the hook off, also for its callees. Capture breaks at the call."""

    __slots__ = ("_plain",)

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self._plain = _hook.plain(fn)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._plain(*args, **kwargs)


# ---- objects in a module's _compiled_call_impl ----------------------------------------------------------
class InModule:
    """The callable that torch.nn.Module calls in place of ``_call_impl``, as the module's ``_compiled_call_impl``.

    torch drops that attribute when a module is pickled or copied. A class with its own ``__getstate__`` may keep it,
    and then gets None in its place, so a copy of a module is never translated. The module is held weakly, so that it
    is freed as early as before.
    """

    __slots__ = ("_module", "__weakref__")

    def __init__(self, module: Any) -> None:
        self._module = ref(module)

    @property
    def module(self) -> Any:
        """The module. Raises ReferenceError if it has been freed."""
        module = self._module()
        if module is None:
            raise ReferenceError("the module that this belongs to is gone")
        return module

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.module._call_impl

    def install(self) -> None:
        """Set this as the module's callable, ignoring a ``__setattr__`` of its class."""
        self.module.__dict__["_compiled_call_impl"] = self

    def __deepcopy__(self, memo: dict) -> None:
        return None

    def __reduce__(self) -> Any:
        return type(None), ()

    def __repr__(self) -> str:
        module = self._module()
        return f"<{type(self).__name__} of {'nothing' if module is None else name_of(module)}>"


class NotToStaticModule(InModule):
    """Runs a module instance that is marked not_to_static."""

    __slots__ = ("_plain",)

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._plain = _hook.plain(call_impl)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._plain(self.module, *args, **kwargs)


def call_impl(module: Any, /, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


# ---- queries ------------------------------------------------------------------------------------------
def in_module(value: object) -> InModule | None:
    """The object of this package in the ``_compiled_call_impl`` of a module instance, or None."""
    found = own_dict(value)
    found = found.get("_compiled_call_impl") if type(found) is dict else None
    return found if isinstance(found, InModule) else None


def is_not_to_static(value: object) -> bool:
    """Whether it is a function, method or module instance that is marked not_to_static."""
    if type(value) is MethodType:
        value = value.__func__
    return isinstance(value, (NotToStatic, NotToStaticModule)) or isinstance(in_module(value), NotToStaticModule)


def is_ignored(name: str | None) -> bool:
    """Whether ignore_module was called for the module of this dotted name, or for a package that contains it."""
    if not IGNORED_MODULES or not name:
        return False
    return any(name == ignored or name.startswith(ignored + ".") for ignored in IGNORED_MODULES)


def name_of(value: object) -> str:
    """The name of a function, class, module instance or other callable in messages."""
    if isinstance(value, functools.partial):
        return f"partial of {name_of(value.func)}"
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else f"a {type(value).__qualname__}"


def graph_break() -> None:
    """Capture breaks at a call of this function. Otherwise it does nothing."""


def mark_dynamic(tensor: Any, *dims: int) -> None:
    """Mark sizes of a tensor as dynamic. Capture treats them as symbols from the first call on, unless they are 0 or 1.

    Arguments:
        tensor: a torch.Tensor. Tensors computed from it are not marked.
        dims: its dimensions; negative ones count from the end.

    Raises TypeError for what is no tensor, IndexError for a dimension that the tensor does not have.
    """
    if not callable(getattr(tensor, "dim", None)):
        raise TypeError(f"mark_dynamic needs a tensor and its dimensions, not {tensor!r}")
    for dim in dims:
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"mark_dynamic: dimension {dim} of a tensor of {tensor.dim()} dimensions")
    marked = frozenset(dim % tensor.dim() for dim in dims)
    setattr(tensor, MARK, getattr(tensor, MARK, frozenset()) | marked)


def observed() -> None:
    """Capture breaks at a call of this function, as it must when a report is read. Reports omit that break."""
