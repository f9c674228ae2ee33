"""torch._dynamo's stance and configuration, and the functions that are called when they change."""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from sot.support.collector import import_large

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile",
           "aot_eager_then_compile")


@dataclass(frozen=True)
class Stance:
    """The setting of torch.compiler.set_stance."""

    name: str = "default"
    backend: Any = None
    skips_guards: bool = False


def loaded() -> ModuleType:
    """torch._dynamo, imported."""
    return import_large("torch._dynamo")


def is_loaded() -> bool:
    """Whether the program has imported torch._dynamo. torch's fake tensors do."""
    return "torch._dynamo" in sys.modules


def stance() -> Stance:
    """The stance in force. torch's own functions set it, so it is read where they keep it."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return Stance()
    return stance_of(frames._stance)


def stance_of(theirs: Any) -> Stance:
    """The same, from torch's own object."""
    return Stance(theirs.stance, theirs.backend, theirs.skip_guard_eval_unsafe)


@functools.cache
def tell(before_stance: Callable[[Stance], None], after_stance: Callable[[], None],
         after_reset: Callable[[], None]) -> None:
    """Have these called before and after each change of the stance, and by torch.compiler.reset."""
    dynamo: Any = loaded()
    decorators: Any = import_module("torch._dynamo.decorators")
    set_stance, reset = decorators._set_stance, dynamo.reset

    @functools.wraps(set_stance)
    def set_and_tell(stance: Any) -> Any:
        before_stance(stance_of(stance))
        prior = set_stance(stance)
        after_stance()
        return prior

    @functools.wraps(reset)
    def reset_and_tell() -> None:
        reset()
        after_reset()
    decorators._set_stance, dynamo.reset = set_and_tell, reset_and_tell


def setting(name: str, default: Any) -> Any:
    """A row of torch._dynamo.config, if the program has imported it and this version has the row."""
    config = sys.modules.get("torch._dynamo.config")
    return default if config is None else getattr(config, name, default)


def default_backend() -> Any:
    """The default backend of torch.compile: "inductor", or what set_default_backend has set."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    return "inductor" if registry is None else getattr(registry, "get_default_backend", lambda: "inductor")()
