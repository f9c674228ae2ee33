"""The translations of functions and modules that sot.compile has compiled.

They capture as ``to_static`` does, and support what programs for torch.compile expect: torch.compiler.is_compiling()
is True in captured code, torch.compiler.set_stance decides what a call does, and torch._dynamo.config what is
compiled.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import torch

from sot import _hook
from sot.backends import BackendError
from sot.bytecode.code_table import CodeTable
from sot.driver.recompile_reasons import learnt_from, read, reasons
from sot.driver.translator import Translator
from sot.frontend.api import StaticFunction, StaticModule, everything
from sot.frontend.drop_in.arguments import Arguments, NotPossibleError
from sot.guards.assumptions import Assumptions
from sot.guards.origin import Arg, Dim, Inputs, Origin
from sot.reports.records import Capture
from sot.support.errors import CaptureError, CaptureStop, Reason
from sot.support.settings import Entries
from sot.torch_compat.dynamo.state import STANCES, Stance, setting, stance

NO_CAPTURE = ("force_eager", "eager_on_recompile")


class CompileTranslator(Translator):
    """A translator that obeys torch.compiler.set_stance and torch._dynamo.config.

    Arguments:
        arguments: the arguments of sot.compile.
        backend: the backend that a stance requests in place of that in the arguments.
    """

    def __init__(self, arguments: Arguments, backend: Any = None) -> None:
        settings = arguments.settings(backend)
        super().__init__(settings.compiler(), full_graph=settings.full_graph, dynamic=settings.dynamic)
        self.arguments, self.dynamic = arguments, settings.dynamic
        self.settings = replace(self.settings, told=True)
        self.own_limit, self.is_forced = self.limit, backend is not None
        self.first_calls: CodeTable[list[dict[Origin, int]]] = CodeTable(lambda code: [])
        self.ahead: Translator | None = None        # used for the first call in the stance "aot_eager_then_compile"

    def answer(self, function: FunctionType, inputs: Inputs) -> Callable | _hook.Sentinel | None:
        now, code = Stance() if self.is_forced else stance(), function.__code__
        if setting("disable", False) or now.name in NO_CAPTURE:
            return None
        if now.name == "fail_on_recompile" or setting("error_on_recompile", False) and self.states.of(code).entries:
            refuse_recompile(self, function, inputs)
        if now.name == "eager_then_compile" and not (first := self.first_calls.of(code)):
            first.append(sizes(code, inputs))
            return None
        self.limit = self.limits()
        self.learn_from_first_call(code, inputs)
        try:
            return super().answer(function, inputs)
        except BackendError as e:
            if not setting("suppress_errors", False):
                raise
            warnings.warn(f"{function.__qualname__} runs eagerly, as torch._dynamo.config.suppress_errors asks: {e}",
                          stacklevel=2)
            _hook.skip(code, self.callback)
            return None

    def limits(self) -> Entries:
        """How often a function may be compiled, by the argument, torch._dynamo.config or SOT_ENTRIES, in this
        order.
        """
        limit = self.arguments.recompile_limit or setting("recompile_limit", self.own_limit.of_function)
        if limit == 8 and self.arguments.recompile_limit is None:   # this is torch's default, so SOT_ENTRIES counts
            limit = self.own_limit.of_function
        of_all = setting("accumulated_recompile_limit", self.own_limit.of_code)
        return Entries(limit, max(limit, min(of_all, self.own_limit.of_code)))

    def assumptions(self, code: CodeType) -> Assumptions:
        found = super().assumptions(code)
        if self.dynamic is None and not setting("assume_static_by_default", True):
            found |= Assumptions(everything=True)
        if self.dynamic is None and not setting("automatic_dynamic_shapes", True):
            found |= Assumptions(static=True)
        return found

    def learn_from_first_call(self, code: CodeType, inputs: Inputs) -> None:
        """Values that differ from those of an uncompiled first call become symbols at once."""
        if self.ahead is not None:
            self.learn(code, learnt_from(read(self.ahead.states.of(code).entries, inputs), inputs))
        if first := self.first_calls.of(code):
            found = {origin for origin, size in sizes(code, inputs).items() if first[0].get(origin, size) != size}
            self.learn(code, Assumptions(varying=frozenset(found)))

    def leave_to_python(self, function: FunctionType, inputs: Inputs, record: Capture, stop: CaptureStop) -> None:
        if stop.reason is Reason.RECOMPILE_LIMIT and setting("fail_on_recompile_limit_hit", False):
            raise CaptureError(f"{function.__qualname__}: {stop}") from stop
        super().leave_to_python(function, inputs, record, stop)


def sizes(code: CodeType, inputs: Inputs) -> dict[Origin, int]:
    """The sizes of the tensors among the arguments of a call, and the numbers."""
    found: dict[Origin, int] = {}
    for i, name in enumerate(code.co_varnames[:code.co_argcount]):
        value, origin = inputs[i], Arg(i, name)
        if type(value) in (int, float):
            found[origin] = value
        elif isinstance(value, torch.Tensor):
            found |= {Dim(origin, d, ""): size for d, size in enumerate(value.shape)}
    return found


def refuse_recompile(translator: Translator, function: FunctionType, inputs: Inputs) -> None:
    """Raises RuntimeError for a call that would be captured, if it has tensors."""
    if not any(isinstance(value, torch.Tensor | torch.nn.Module) for value in inputs):
        return
    code = function.__code__
    why = "; ".join(r.text for r in reasons(read(translator.states.of(code).entries, inputs), inputs, code))
    where = f"{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    raise RuntimeError(f"Detected recompile of {where}, which the stance 'fail_on_recompile' or "
                       f"torch._dynamo.config.error_on_recompile forbids"
                       f"{f': {why}' if why else ''}")


# ---- what is called in place of a function or a module --------------------------------------------------------
class Compiled:
    """The base class of both. A change of the stance sets the behaviour of calls, so calls need not check it."""

    __slots__ = ()
    arguments: Arguments
    forced: dict[Any, Any]      # by the backend that a stance requests
    is_forced: bool
    translator: Any
    captured: Callable[..., Any]
    python: Callable[..., Any]

    def with_backend(self, backend: Any) -> Any:
        """The same, compiled with the backend that a stance requests."""
        raise NotImplementedError

    def turn(self, on: bool) -> None:
        now = stance()
        if not on or now.name == "force_eager":
            call = self.python
        elif now.name == "aot_eager_then_compile" and self.translator.ahead is None and not self.is_forced:
            call = self.ahead_of_time
        elif now.backend is None or self.is_forced:
            call = self.captured
        else:
            call = self.by(now.backend).captured
        self.__call__ = call    # type: ignore[misc]

    def by(self, backend: Any) -> Any:
        """The same, compiled with another backend."""
        if backend not in self.forced:
            self.forced[backend] = self.with_backend(backend)
        return self.forced[backend]

    def ahead_of_time(self, *args: Any, **kwargs: Any) -> Any:
        """The first call in the stance "aot_eager_then_compile"."""
        self.translator.ahead = self.by("aot_eager").translator
        self.__call__ = self.captured
        return self.by("aot_eager").captured(*args, **kwargs)


class CompiledFunction(Compiled, StaticFunction):
    """A function or method that sot.compile has compiled."""

    __slots__ = ("arguments", "forced", "is_forced", "_torchdynamo_orig_callable", "_torchdynamo_wrapper_id")

    def __init__(self, fn: Callable[..., Any], arguments: Arguments, backend: Any = None) -> None:
        self.arguments, self.forced, self.is_forced = arguments, {}, backend is not None
        StaticFunction.__init__(self, fn, arguments.settings(backend), CompileTranslator(arguments, backend))
        # torch and libraries find the function by these names.
        self._torchdynamo_orig_callable, self._torchdynamo_wrapper_id = fn, id(self)

    def with_backend(self, backend: Any) -> CompiledFunction:
        return CompiledFunction(self.__wrapped__, self.arguments, backend)

    @property
    def _title(self) -> str:
        return self.arguments.name or super()._title

    def get_compiler_config(self) -> dict[str, Any]:
        return dict(self.arguments.options or {})

    def again(self, fn: Callable[..., Any]) -> CompiledFunction:
        return CompiledFunction(fn, self.arguments)

    def __reduce__(self) -> Any:
        by_name = super().__reduce__()
        return by_name if isinstance(by_name, str) else (CompiledFunction, (self.__wrapped__, self.arguments))


class CompiledForward(Compiled, StaticModule):
    """The callable of a module that sot.compile has compiled. The module itself does not change."""

    __slots__ = ("arguments", "forced", "is_forced")

    def __init__(self, module: torch.nn.Module, arguments: Arguments, backend: Any = None) -> None:
        self.arguments, self.forced, self.is_forced = arguments, {}, backend is not None
        StaticModule.__init__(self, module, arguments.settings(backend), CompileTranslator(arguments, backend))

    def with_backend(self, backend: Any) -> CompiledForward:
        return CompiledForward(self.module, self.arguments, backend)

    @property
    def _title(self) -> str:
        return self.arguments.name or super()._title


def refuse_stance(new: Stance) -> None:
    """Raises NotPossibleError for a stance that SOT does not support."""
    if new.skips_guards:
        raise NotPossibleError("torch.compiler.set_stance(skip_guard_eval_unsafe=True): SOT checks every guard; remove "
                               "the argument")
    if new.name not in STANCES:
        raise NotPossibleError(f"torch.compiler.set_stance: SOT does not know the stance {new.name!r}")


def stance_changed() -> None:
    """Apply the new stance to everything that is compiled."""
    everything.turn(everything.on)


def forget_compiled() -> None:
    """Drop everything that was compiled, for torch.compiler.reset()."""
    for translation in list(everything.members):
        if isinstance(translation, Compiled):
            translation.translator.forget()
            translation.translator.captures.clear()
