"""explain(fn)(*args): one call with a fresh capture, and a report of it."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from sot.frontend.api import (
    Settings,
    StaticFunction,
    StaticModule,
    TargetError,
    original,
    refuse_unreachable,
    translation_of,
)
from sot.frontend.inspection import Explanation
from sot.guards.guards import short
from sot.reports.recording import Recording, recorded
from sot.support.tracebacks import public
from sot.support.user_annotations import name_of
from sot.torch_compat.dynamo.modules import inside


@public(hint="Did you mean sot.explain(f)(x)?")
def explain(fn_or_module: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` calls ``fn(*args)`` once with a fresh capture, and returns an Explanation.

    Arguments:
        fn_or_module: a target of to_static, but not a class. If it is translated already, its settings are used, but
            breaks are shown even if its ``full_graph`` refuses them. Otherwise the backend is eager. The target does
            not change.

    An exception of the call is raised. Raises TargetError for a target that cannot be translated.
    """
    target = fn_or_module.__func__ if isinstance(fn_or_module, staticmethod) else fn_or_module
    translation = translation_of(target)
    settings = translation.settings if translation else Settings("eager")
    target = inside(target)
    if isinstance(target, torch.nn.Module):
        refuse_unreachable(target)
        return functools.partial(explained, StaticModule, target, settings)
    if isinstance(target, type | classmethod):
        raise TargetError(f"explain needs something to call, not {short(target)}: pass an instance or a method")
    fn = original(target, "explain")
    return functools.partial(explained, StaticFunction, fn, settings)


def explained(kind: Callable[..., Any], target: Any, settings: Settings, /, *args: Any, **kwargs: Any) -> Explanation:
    """Call ``kind(target)`` once under a separate translator."""
    translator = settings.explainer()
    call = kind(target, settings, translator)
    recording = Recording(name_of(target).removeprefix("a "))
    try:
        with recorded(recording):
            result = call(*args, **kwargs)
        return Explanation(recording.program, result, list(translator.captures), recording.elapsed, recording)
    finally:
        translator.forget()
