"""The backends of torch.compile, as backends of this package.

They expect the environment of torch.compile: fake inputs of one mode, and a tracing context with that mode.
`DynamoBackend` sets up both, so inductor, aot_eager and the others run on a captured graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch.fx import GraphModule

from sot.backends.errors import BackendUnavailableError, OptionsError
from sot.torch_compat import compilers

# Requirements that torch reports late or never: the backend's name, the requirement, whether it is met.
REQUIREMENTS: dict[str, tuple[str, Callable[[], bool]]] = {
    "cudagraphs": ("a CUDA device", torch.cuda.is_available),
    "openxla": ("the package torch_xla", lambda: find_spec("torch_xla") is not None),
    "openxla_eval": ("the package torch_xla", lambda: find_spec("torch_xla") is not None),
    "tvm": ("the package tvm", lambda: find_spec("tvm") is not None),
}


def names() -> frozenset[str]:
    return compilers.dynamo_backend_names()


def check_requirements(name: str) -> None:
    """Refuse, with the reason, a backend that could only fail."""
    need, present = REQUIREMENTS.get(name, ("", lambda: True))
    if not present():
        raise BackendUnavailableError(f"backend {name!r} needs {need}, which is not available here")
    if missing := _further_arguments(compilers.dynamo_backend(name)):
        raise BackendUnavailableError(
            f"backend {name!r} needs further arguments ({', '.join(missing)}): get it from torch._dynamo "
            "and pass functools.partial of it"
        )


def _further_arguments(compile_graph: Callable[..., Any]) -> list[str]:
    """Names of the arguments, beyond graph and inputs, that have no default."""
    required = [
        parameter.name
        for parameter in inspect.signature(compile_graph).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return required[2:]


@dataclass(frozen=True)
class DynamoBackend:
    """A backend of torch.compile by its name there, with the options of its mode."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def modes(self) -> dict[str, DynamoBackend]:
        known = compilers.dynamo_modes(self.name)
        return {mode: DynamoBackend(self.name, options) for mode, options in known.items()}

    def with_options(self, options: Mapping[str, Any]) -> DynamoBackend:
        """The same with options. For inductor these are names of its configuration; others raise OptionsError."""
        chosen = {name.replace("-", "_"): value for name, value in options.items()}
        if self.name == "inductor" and (unknown := compilers.unknown_options(chosen)):
            raise OptionsError(f"inductor has no option {unknown[0]!r}")
        return DynamoBackend(self.name, chosen)

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        check_requirements(self.name)
        compile_graph = compilers.dynamo_backend(self.name)
        mode, fakes = compilers.fake_inputs(gm, example_inputs)
        with compilers.compiling(mode):
            if self.options:
                keyword = "config_patches" if self.name == "inductor" else "options"
                return compile_graph(gm, fakes, **{keyword: dict(self.options)})
            return compile_graph(gm, fakes)
