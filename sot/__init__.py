"""SOT turns PyTorch programs into graphs while they run: ``sot.to_static(fn_or_module)``.

``explain(fn)(*args)`` shows the graphs, the breaks and the guards. See README.md.

Names are loaded when they are first used: torch imports this package in every process, to see whether SOT_ENABLE
asks for it (sot.frontend.autoload), and that must cost nothing.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.support.collector import import_large
from sot.support.random_states import kept_random_states
from sot.support.version import VERSION as __version__

if TYPE_CHECKING:
    from sot.backends import list_backends, register_backend
    from sot.deploy.loading import load
    from sot.deploy.saving import save
    from sot.driver.translator import reset
    from sot.frontend.api import ignore_module, not_to_static, to_static, translation_of
    from sot.frontend.assertion import assert_captured
    from sot.frontend.drop_in.compile_ import compile
    from sot.frontend.explanation import explain
    from sot.frontend.global_mode import disable, enable, enable_to_static
    from sot.frontend.input_spec import InputSpec
    from sot.reports.log import set_code_level, set_verbosity
    from sot.support.errors import CaptureError, SotError
    from sot.support.user_annotations import graph_break, mark_dynamic

HOMES = {
    "frontend.api": ("ignore_module", "not_to_static", "to_static", "translation_of"),
    "frontend.assertion": ("assert_captured",),
    "frontend.drop_in.compile_": ("compile",),
    "backends": ("list_backends", "register_backend"),
    "deploy.loading": ("load",),
    "deploy.saving": ("save",),
    "support.errors": ("CaptureError", "SotError"),
    "frontend.explanation": ("explain",),
    "frontend.input_spec": ("InputSpec",),
    "reports.log": ("set_code_level", "set_verbosity"),
    "support.user_annotations": ("graph_break", "mark_dynamic"),
    "frontend.global_mode": ("disable", "enable", "enable_to_static"),
    "driver.translator": ("reset",),
    "frontend.notebook.magic": ("load_ipython_extension",),
}
HOME_OF = {name: home for home, names in HOMES.items() for name in names}

__all__ = [
    "CaptureError",
    "InputSpec",
    "SotError",
    "__version__",
    "assert_captured",
    "compile",
    "disable",
    "enable",
    "enable_to_static",
    "explain",
    "graph_break",
    "ignore_module",
    "list_backends",
    "load",
    "mark_dynamic",
    "not_to_static",
    "register_backend",
    "reset",
    "save",
    "set_code_level",
    "set_verbosity",
    "to_static",
    "translation_of",
]


def __getattr__(name: str) -> Any:
    if name not in HOME_OF:
        raise AttributeError(f"module 'sot' has no attribute {name!r}")
    with kept_random_states():
        value = globals()[name] = getattr(import_large(f"sot.{HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
