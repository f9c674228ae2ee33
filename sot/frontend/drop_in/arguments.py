"""The arguments of torch.compile, what they mean here, and which are refused."""
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

REFUSED = {
    "shapes_spec": "SOT takes sot.InputSpec: sot.to_static(..., input_spec=[...])",
    "guard_filter_fn": "SOT has guards of its own, which no function written for torch.compile's can choose from",
    "use_aoti": "use sot.save for a model as a file",
}
GUARD_FILTER_OPTIONS = ("guard_filter_fn", "use_aoti")


class NotPossibleError(SotError, NotImplementedError):
    """Something of torch.compile that SOT does not do."""


def refuse(what: str) -> NoReturn:
    raise NotPossibleError(f"sot.compile does not take {what}: {REFUSED[what]}")


@dataclass(frozen=True)
class Arguments:
    """What torch.compile is told of how to compile. Making one refuses what has no meaning."""

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

    def __post_init__(self) -> None:
        for what in ("fullgraph", "disable", "isolate_recompiles"):
            if not isinstance(getattr(self, what), bool):
                raise TargetError(f"{what} is True or False, not {short(getattr(self, what))}")
        if self.dynamic not in (None, True, False):
            raise TargetError(f"dynamic is None, True or False, not {short(self.dynamic)}")
        limit = self.recompile_limit
        if limit is not None and (type(limit) is not int or limit < 1):
            raise TargetError(f"recompile_limit is a number above 0, or None, not {short(limit)}")
        if self.shapes_spec is not None:
            refuse("shapes_spec")
        if self.options is not None and not isinstance(self.options, Mapping):
            raise TargetError(f"options is a dict, not {short(self.options)}")
        if self.mode is not None and self.options is not None:
            raise OptionsError("mode and options both choose a configuration: give one of them")
        for what in GUARD_FILTER_OPTIONS:
            if what in (self.options or {}):
                refuse(what)
        if not self.is_disabled:
            self.settings().compiler()

    @property
    def is_disabled(self) -> bool:
        """Is compiling switched off, by the call or by the environment?"""
        return self.disable or os.environ.get("TORCHDYNAMO_DISABLE", "") == "1"

    def settings(self, backend: Any = None) -> Settings:
        """The same as the arguments of to_static, with another backend if there is one."""
        if backend is not None:
            return Settings(backend, self.fullgraph, dynamic=self.dynamic)
        backend = state.default_backend() if self.backend is None else self.backend
        return Settings(backend, self.fullgraph, dynamic=self.dynamic, mode=self.mode, options=self.options)
