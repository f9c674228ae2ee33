"""The arguments of torch.compile: their meaning here, and which are refused."""
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sot.backends import Backend, OptionsError
from sot.frontend.api import Settings, TargetError
from sot.guards.guards import short
from sot.support.errors import SotError
from sot.torch_compat.dynamo import state

INPUT_SPEC = "SOT takes sot.InputSpec: sot.to_static(..., input_spec=[...])"
REFUSED = {
    "shapes_spec": INPUT_SPEC,
    "dynamic_shapes": INPUT_SPEC,
    "use_aoti": "use sot.save for a model as a file",
}
GUARD_FILTER = "guard_filter_fn"     # SOT checks every guard, so the filter has no effect


class NotPossibleError(SotError, NotImplementedError):
    """A feature of torch.compile that SOT does not support."""


def refuse(what: str) -> NoReturn:
    raise NotPossibleError(f"sot.compile does not take {what}: {REFUSED[what]}")


@dataclass(frozen=True)
class Arguments:
    """The arguments of torch.compile. The constructor refuses invalid ones."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Backend | None = None
    mode: str | None = None
    options: Mapping[str, Any] | None = field(default=None, hash=False)
    name: str | None = None
    disable: bool = False
    recompile_limit: int | None = None
    isolate_recompiles: bool = False
    shapes_spec: Any = field(default=None, hash=False)
    dynamic_shapes: Any = field(default=None, hash=False)

    def __post_init__(self) -> None:
        for what in ("fullgraph", "disable", "isolate_recompiles"):
            if not isinstance(getattr(self, what), bool):
                raise TargetError(f"{what} must be True or False, not {short(getattr(self, what))}")
        if self.dynamic not in (None, True, False):
            raise TargetError(f"dynamic must be None, True or False, not {short(self.dynamic)}")
        limit = self.recompile_limit
        if limit is not None and (type(limit) is not int or limit < 1):
            raise TargetError(f"recompile_limit must be a number above 0, or None, not {short(limit)}")
        for what in ("shapes_spec", "dynamic_shapes"):
            if getattr(self, what) is not None:
                refuse(what)
        if self.options is not None and not isinstance(self.options, Mapping):
            raise TargetError(f"options must be a dict, not {short(self.options)}")
        if self.mode is not None and self.options is not None:
            raise OptionsError("mode and options both choose a configuration: pass only one of them")
        options = self.options or {}
        if "use_aoti" in options:
            refuse("use_aoti")
        if GUARD_FILTER in options and not callable(options[GUARD_FILTER]):
            raise OptionsError(f"{GUARD_FILTER} must be a function, not {short(options[GUARD_FILTER])}")
        if not self.is_disabled:
            self.settings().compiler()

    @property
    def is_disabled(self) -> bool:
        """Whether the call or the environment disables compilation."""
        return self.disable or os.environ.get("TORCHDYNAMO_DISABLE", "") == "1"

    def settings(self, backend: Any = None) -> Settings:
        """These as arguments of to_static. ``backend`` replaces the backend if it is given."""
        if backend is not None:
            return Settings(backend, self.fullgraph, dynamic=self.dynamic)
        backend = state.default_backend() if self.backend is None else self.backend
        options = self.options and {name: value for name, value in self.options.items() if name != GUARD_FILTER}
        return Settings(backend, self.fullgraph, dynamic=self.dynamic, mode=self.mode, options=options or None)
