"""The functions to_static, not_to_static and ignore_module.

``to_static`` replaces a function by a ``StaticFunction``. A module instance stays the same object and gets a
``StaticModule`` that torch calls for it. Both set the translator's callback during a call. Invalid arguments of
``to_static`` are refused when the function is decorated.
"""
from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, NoReturn, TypeVar, overload

import torch

from sot._hook import Direct, plain
from sot.backends import Backend, OptionsError, backend_name, lookup_backend, with_mode, with_options
from sot.bytecode.suspensions import NoPieces, pieces_of
from sot.checking.calls import beside_python, call_module, rate_of
from sot.driver.suspending import SuspendingCall, is_suspending
from sot.driver.translator import Translator
from sot.frontend.input_spec import CallCheck, InputSpecError
from sot.frontend.inspection import Inspected
from sot.guards.guard_program import module_forward
from sot.guards.guards import short
from sot.support import user_annotations
from sot.support.errors import SotError
from sot.support.tracebacks import ends_here, public
from sot.support.user_annotations import (
    InModule,
    NotToStatic,
    NotToStaticModule,
    Translated,
    call_impl,
    in_module,
    name_of,
)
from sot.torch_compat.dynamo.modules import inside, is_compiled_module

F = TypeVar("F")
SUSPENDING = (
    (inspect.iscoroutinefunction, "coroutine function", "Translate the functions that it calls"),
    (inspect.isasyncgenfunction, "asynchronous generator function", "Translate its callees"),
    (inspect.isgeneratorfunction, "generator function",
     "Translate the function that iterates over it (it is inlined there), or its callees"),
)
CALLS_ON = frozenset({"__call__", "_call_impl", "_wrapped_call_impl", "_compiled_call_impl"})


class TargetError(SotError, TypeError):
    """A target cannot be translated or marked."""


@dataclass(frozen=True)
class Settings:
    """The arguments of to_static. The constructor refuses an unknown backend."""

    backend: str | Backend = "auto"
    full_graph: bool = False
    input_spec: Any = None
    dynamic: bool | None = None
    control_flow: str = "break"
    check: float | None = None
    mode: str | None = None
    options: Mapping[str, Any] | None = field(default=None, hash=False)
    data_sizes: str = "graph"

    def __post_init__(self) -> None:
        self.compiler()
        rate_of(self.check)
        if self.control_flow not in ("break", "graph"):
            raise ValueError(f"control_flow must be 'break' or 'graph', not {short(self.control_flow)}")
        if self.data_sizes not in ("break", "graph"):
            raise ValueError(f"data_sizes must be 'break' or 'graph', not {short(self.data_sizes)}")

    def compiler(self) -> Backend:
        """The backend function. Raises UnknownBackendError, ModeError or another BackendError."""
        if self.options and self.mode not in (None, "default"):
            raise OptionsError(f"mode {self.mode!r} and options both choose a configuration: pass only one of them")
        return with_options(with_mode(lookup_backend(self.backend), self.mode), self.options)

    def translator(self) -> Translator:
        return Translator(self.compiler(), full_graph=self.full_graph, dynamic=self.dynamic,
                          control_flow=self.branches_in_graph, check=rate_of(self.check),
                          data_sizes=self.data_sizes == "graph")

    def explainer(self) -> Translator:
        """A translator for one call that shows what others refuse: breaks, internal failures, first calls."""
        return Translator(self.compiler(), full_graph=False, strict=False, dynamic=self.dynamic,
                          control_flow=self.branches_in_graph, data_sizes=self.data_sizes == "graph",
                          takes_first_calls=True)

    @property
    def branches_in_graph(self) -> bool:
        return self.full_graph or self.control_flow == "graph"

    def argument_check(self, fn: Callable[..., Any], translator: Translator) -> Callable[..., None] | None:
        """A function that checks the arguments of each call, with the hook off; None without input_spec."""
        if self.input_spec is None:
            return None
        check = CallCheck(fn, self.input_spec)
        code = getattr(getattr(fn, "__func__", fn), "__code__", None)
        if code is not None:
            translator.named[code] = check.shapes()
        return plain(check)

    def __str__(self) -> str:
        more = ", full_graph" if self.full_graph else ", control_flow 'graph'" if self.control_flow == "graph" else ""
        more += "" if self.mode is None else f", mode {self.mode!r}"
        more += "" if not self.options else f", options {dict(self.options)}"
        more += "" if self.data_sizes == "graph" else f", data_sizes {self.data_sizes!r}"
        more += "" if self.dynamic is None else f", dynamic={self.dynamic}"
        return f"backend {backend_name(lookup_backend(self.backend))!r}{more}"


# ---- what is called in place of a function or a module --------------------------------------------------
class Everything:
    """All existing translations, and whether they are enabled: see ``sot.enable_to_static``."""

    def __init__(self) -> None:
        self.on = True
        self.members: weakref.WeakSet[Translation] = weakref.WeakSet()

    def turn(self, on: bool) -> None:
        self.on = on
        for translation in list(self.members):
            translation.turn(on)


everything = Everything()


class Translation(Inspected):
    """The base class of the translations of functions and modules. Its ``__call__`` is one of two functions:
    ``captured``, in C unless arguments are checked first, or ``python``.
    """

    __slots__ = ()
    settings: Settings
    captured: Callable[..., Any]
    python: Callable[..., Any]

    def begin(self) -> None:
        """Start translating calls, unless all translations are disabled."""
        self.turn(everything.on)
        everything.members.add(self)
        # Freeing this object also frees its captures. Code objects would keep them alive otherwise.
        weakref.finalize(self, self.translator.forget).atexit = False

    def turn(self, on: bool) -> None:
        """Translate calls from now on, or leave them to Python."""
        self.__call__ = self.captured if on else self.python    # type: ignore[method-assign]

    def end(self) -> None:
        """Leave all calls to Python from now on, and drop what was captured."""
        everything.members.discard(self)
        self.turn(False)
        self.translator.forget()
        self.translator.captures.clear()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


# The annotations of a translated function are those of the function. Python would find these first.
del Inspected.__annotations__, Translation.__annotations__


class StaticFunction(Translation, Translated):
    """A function, method or other callable that runs under a translator."""

    __slots__ = ("settings", "translator", "captured", "python", "__call__")

    def __init__(self, fn: Callable[..., Any], settings: Settings, translator: Translator | None = None) -> None:
        Translated.__init__(self, fn)
        translator = translator or settings.translator()
        call = python_call(fn)
        direct: Callable[..., Any] = SuspendingCall(fn, translator.callback) if is_suspending(fn) else Direct(
            call, translator.callback, call if isinstance(call, FunctionType) else None)
        static = checked(settings.argument_check(fn, translator), direct)
        self.settings, self.translator, self.python = settings, translator, call
        rate = 0.0 if is_suspending(fn) else rate_of(settings.check)     # what suspends cannot run twice
        self.captured = beside_python(static, name_of(fn), call, rate)
        self.begin()

    @property
    def _title(self) -> str:
        return name_of(self.__wrapped__)

    def rollback(self) -> Callable[..., Any]:
        """End the translation for the caller. From now on Python runs the function, which is returned."""
        self.end()
        return self.__wrapped__

    def again(self, fn: Callable[..., Any]) -> StaticFunction:
        return StaticFunction(fn, self.settings)

    def __reduce__(self) -> Any:
        by_name = super().__reduce__()
        return by_name if isinstance(by_name, str) else (StaticFunction, (self.__wrapped__, self.settings))


class StaticModule(Translation, InModule):
    """The callable of a translated module instance. It calls ``_call_impl``, so hooks run as usual."""

    __slots__ = ("settings", "translator", "captured", "python", "__call__")

    def __init__(self, module: torch.nn.Module, settings: Settings, translator: Translator | None = None) -> None:
        InModule.__init__(self, module)
        translator = translator or settings.translator()
        owner = self._module
        static = checked(settings.argument_check(type(module).forward, translator), Direct(
            "_call_impl", translator.callback, *module_forward(module)), owner)

        def python(*args: Any, **kwargs: Any) -> Any:
            return call_impl(owner(), *args, **kwargs)
        self.settings, self.translator, self.python = settings, translator, python
        self.captured = beside_python(static, name_of(module), call_module, rate_of(settings.check), owner)
        self.begin()

    @property
    def _title(self) -> str:
        return name_of(self.module).removeprefix("a ")

    def rollback(self) -> torch.nn.Module:
        """End the translation. From now on Python runs the module, which is returned."""
        module = self.module
        self.end()
        if module.__dict__.get("_compiled_call_impl") is self:
            del module.__dict__["_compiled_call_impl"]
        return module


def checked(check: Callable[..., None] | None, call: Callable[..., Any],
            owner: weakref.ref | None = None) -> Callable[..., Any]:
    """A call that first checks its arguments, if there is a check. ``owner`` is the module that precedes the
    arguments.
    """
    if check is None:
        return call

    def check_and_call(*args: Any, **kwargs: Any) -> Any:
        try:
            check(args if owner is None else (owner(), *args), kwargs)
        except InputSpecError as e:
            raise ends_here(e) from None
        return call(*args, **kwargs)
    return check_and_call


def python_call(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function that calls ``fn``, so that there is a Python frame to capture. A builtin has none."""
    if not isinstance(fn, BuiltinFunctionType | MethodDescriptorType):
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    name = name_of(fn)
    code = call.__code__.replace(co_filename=f"<{name}>", co_name=name, co_qualname=name, co_firstlineno=1)
    # frames of this package are not captured
    return FunctionType(code, {"__name__": name}, name, None, call.__closure__)


# ---- to_static ------------------------------------------------------------------------------------------
@overload
def to_static(fn_or_module: None = None, *, input_spec: Any = None, backend: str | Backend = "auto",
              full_graph: bool = False, dynamic: bool | None = None,
              control_flow: str = "break", check: float | None = None,
              mode: str | None = None, options: Mapping[str, Any] | None = None,
              data_sizes: str = "graph") -> Callable[[F], F]: ...
@overload
def to_static(fn_or_module: F, *, input_spec: Any = None, backend: str | Backend = "auto",
              full_graph: bool = False, dynamic: bool | None = None,
              control_flow: str = "break", check: float | None = None, mode: str | None = None,
              options: Mapping[str, Any] | None = None, data_sizes: str = "graph") -> F: ...
@public(hint="The settings are keyword arguments: to_static(f, full_graph=True)")
def to_static(fn_or_module: Any = None, *, input_spec: Any = None, backend: str | Backend = "auto",
              full_graph: bool = False, dynamic: bool | None = None,
              control_flow: str = "break", check: float | None = None, mode: str | None = None,
              options: Mapping[str, Any] | None = None, data_sizes: str = "graph") -> Any:
    """Translate a function or a module into graphs while it runs. A decorator, with or without arguments.

    Arguments:
        fn_or_module: a function, method, staticmethod, classmethod or other callable: returns a callable to use in
            its place. A torch.nn.Module: returns the same object, whose calls are translated from now on. A copy or
            pickle of it is not translated. A subclass of torch.nn.Module: returns it, with ``forward`` translated. A
            target that is translated or compiled already is translated anew from the original, with the settings of
            this call.
        input_spec: an ``InputSpec`` for each argument, checked at every call before anything runs; see
            sot.input_spec.
        backend: a name from ``list_backends()``, or a function backend(graph_module, example_inputs) -> callable.
        full_graph: raise CaptureError at a graph break, and where Python would run the whole function. Implies
            ``control_flow="graph"``.
        dynamic: when sizes of tensors, ints and floats may differ from call to call without a recompile. None: from
            their second value on; sizes for which ``input_spec`` has a name or None, at once. True: at once, for all
            that are reached from the arguments. False: never. Sizes 0 and 1 are always captured separately.
        control_flow: how to treat ``if``, ``while``, ``assert``, ``and``, ``or``, ``not`` and ``x if c else y`` that
            depend on a tensor. With "break", Python decides between two graphs, except where random numbers decide and
            the backend runs the graph as it is. With "graph", both sides become part of one graph, as ``torch.cond``
            and ``while_loop``, if they return tensors of the same kind and have no other effects. A tensor that one
            side only passes on is then a copy, and a result requires grad if it does on either side.
        data_sizes: how to treat operations with a size or number that depends on the data of a tensor: ``x[mask]``,
            ``nonzero``, ``torch.zeros(n.item())``. With "graph" they are part of the graph. With "break", Python
            executes them between two graphs.
        check: the share of calls, from 0 to 1, that plain Python repeats on copies, for comparison. None means
            SOT_CHECK. A difference is a CheckWarning; see sot.checking.
        mode: the effort of the backend, by a name that the backend knows. inductor has those of torch.compile
            ("reduce-overhead", "max-autotune", ...). None is its "default".
        options: further options of the backend. inductor takes names of its configuration. A function is called with
            ``options=``.

    Raises TargetError (a TypeError) for a target that cannot be translated, and for full_graph and dynamic,
    UnknownBackendError, ModeError or another BackendError for the backend and its mode, InputSpecError for the
    input_spec, ValueError for control_flow and data_sizes.
    """
    if dynamic not in (None, True, False):
        raise TargetError(f"dynamic must be None, True or False, not {short(dynamic)}")
    if full_graph not in (True, False):
        raise TargetError(f"full_graph must be True or False, not {short(full_graph)}")
    settings = Settings(backend, full_graph, input_spec, dynamic, control_flow, check, mode, options, data_sizes)
    return functools.partial(public()(translate), settings=settings) if fn_or_module is None else translate(
        fn_or_module, settings=settings)


def translate(target: Any, *, settings: Settings) -> Any:
    """The translated target. Raises TargetError."""
    if is_compiled_module(target):
        target.forward = translate(inside(target), settings=settings).__call__
        return target
    if isinstance(target, torch.nn.Module):
        refuse_unreachable(target)
        StaticModule(target, settings).install()
        return target
    if isinstance(target, staticmethod | classmethod):
        return type(target)(translate(target.__func__, settings=settings))
    if isinstance(target, type):
        return translate_class(target, settings)
    return StaticFunction(original(target), settings)


def translate_class(cls: type, settings: Settings) -> type:
    if not issubclass(cls, torch.nn.Module):
        raise TargetError(f"to_static was given the class {cls.__qualname__}, which is not a torch.nn.Module: pass the "
                          f"methods to translate")
    forward: Any = cls.forward
    if forward is torch.nn.Module.forward:
        raise TargetError(f"to_static was given {cls.__qualname__}, which has no forward")
    cls.forward = StaticFunction(original(forward), settings)
    return cls


def original(target: Any, who: str = "to_static") -> Callable[..., Any]:
    """The callable to translate: the original of an earlier to_static, else the target. Raises TargetError."""
    if user_annotations.is_not_to_static(target):
        raise TargetError(f"{name_of(target)} is marked not_to_static; remove the mark to translate it")
    target = inside(target)     # torch.compile of a function that is compiled also takes what is inside
    if isinstance(target, Translated):
        return target.__wrapped__
    if type(target) is MethodType and isinstance(target.__func__, Translated):
        return MethodType(target.__func__.__wrapped__, target.__self__)
    if not callable(target):
        refuse(who, target)
    refuse_suspending(target, who)
    return target


# ---- refusals -------------------------------------------------------------------------------------------
def refuse(who: str, target: object) -> NoReturn:
    """Raises TargetError for a target that cannot be called."""
    hint = ""
    if isinstance(target, str):
        hint = f" (for a backend: {who}(backend={target!r}))" if who == "to_static" else ""
    elif isinstance(target, property):
        hint = f": put @property above @{who}"
    raise TargetError(f"{who} needs a function, a method or a torch.nn.Module, not {short(target)} "
                      f"({type(target).__name__}){hint}")


def refuse_suspending(target: Any, who: str = "to_static", cut: bool = True) -> None:
    """Raises TargetError for generator and coroutine functions, but for those that can be cut into pieces."""
    if who in ("to_static", "compile") and cut and is_suspending(target):
        try:
            pieces_of(getattr(target, "__func__", target).__code__)
        except NoPieces as e:
            raise TargetError(f"{who} cannot translate {name_of(target)}{position(target)}: {e}. Translate the "
                              f"functions that it calls.") from None
        return
    for fn in (target, getattr(type(target), "__call__", None)):  # noqa: B004
        for is_one, kind, remedy in SUSPENDING:
            if is_one(fn):
                raise TargetError(f"{who} cannot translate the {kind} {name_of(target)}{position(fn)}: it suspends "
                                  f"and resumes, and a graph runs as a whole. {remedy}.")


def position(fn: Any) -> str:
    """`` (file:line)`` of a function; empty without code."""
    code = getattr(inspect.unwrap(getattr(fn, "func", fn)), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""


def refuse_unreachable(module: torch.nn.Module) -> None:
    """Raises TargetError for a module whose forward does not run, or is not called by torch.nn.Module."""
    cls, call = type(module), type(module).__call__
    refuse_suspending(getattr(cls.forward, "__wrapped__", cls.forward), cut=False)
    if isinstance(module, torch.jit.ScriptModule):
        raise TargetError(f"to_static was given a {cls.__qualname__}: TorchScript has compiled it already")
    code = getattr(inspect.unwrap(call), "__code__", None)     # a closure may call the function that it decorates
    if call is not torch.nn.Module.__call__ and not call.__module__.startswith("torch.") and (
            code is not None and CALLS_ON.isdisjoint(code.co_names) and not set(code.co_freevars) - {"__class__"}):
        raise TargetError(f"{cls.__qualname__} overrides __call__{position(call)} without calling that of "
                          f"torch.nn.Module: translate the method that does the work")


# ---- marks ----------------------------------------------------------------------------------------------
@public()
def not_to_static(fn_or_module: F) -> F:
    """Mark a function, method or module to be run by Python: capture breaks at its calls.

    Arguments:
        fn_or_module: a callable: returns a callable to use in its place. A torch.nn.Module: returns the same object; a
            copy or pickle of it is not marked. A subclass of torch.nn.Module: returns it, with ``forward`` marked.

    Raises TargetError (a TypeError) for anything else.
    """
    target: Any = fn_or_module
    if isinstance(target, torch.nn.Module):
        NotToStaticModule(target).install()
        return fn_or_module
    if isinstance(target, staticmethod | classmethod):
        return type(target)(not_to_static(target.__func__))  # type: ignore[return-value]
    if isinstance(target, type):
        if not issubclass(target, torch.nn.Module):
            raise TargetError(f"not_to_static was given the class {target.__qualname__}, which is not a "
                              f"torch.nn.Module: pass the methods to mark")
        target.forward = not_to_static(target.forward)
        return fn_or_module
    if isinstance(target, NotToStatic):
        return fn_or_module
    if not callable(target):
        refuse("not_to_static", target)
    return NotToStatic(target.__wrapped__ if isinstance(target, Translated) else target)  # type: ignore[return-value]


@public()
def ignore_module(modules: ModuleType | str | Iterable[ModuleType | str]) -> None:
    """Leave the functions of modules to Python. For a package this includes everything in it.

    Arguments:
        modules: a module or its dotted name, or several. A named module need not be imported yet.

    Existing captures stay until ``reset()``. Raises TargetError for anything else.
    """
    several = [modules] if isinstance(modules, ModuleType | str) or not isinstance(modules, Iterable) else [*modules]
    user_annotations.IGNORED_MODULES.update(map(module_name, several))


def module_name(module: object, asked_by: str = "ignore_module") -> str:
    name = module.__name__ if isinstance(module, ModuleType) else module
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"{asked_by} needs a module or its dotted name, not {short(module)}")
    return name


def translation_of(target: object) -> StaticFunction | StaticModule | None:
    """The translation that ``to_static`` made of a target, or None.

    It has ``code``, ``graphs``, ``guards``, ``explain()``, ``rollback()``.

    Arguments:
        target: a translated function, also as a method of an instance; a module, which ``to_static`` returns itself
            and which has no room for these names; a class of modules, for the translation of its ``forward``.
    """
    target = inside(target)
    found: Any = in_module(target)
    if found is None:
        is_module = isinstance(target, torch.nn.Module) or isinstance(target, type)
        found = getattr(target, "forward", None) if is_module else target
    if type(found) is MethodType:
        found = found.__func__
    return found if isinstance(found, StaticFunction | StaticModule) else None
