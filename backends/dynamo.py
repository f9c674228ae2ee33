"""The backends of torch.compile, as backends of this package.

They expect the environment of torch.compile: fake inputs of one mode, and a tracing context with that mode.
`DynamoBackend` sets up both, so inductor, aot_eager and the others run on a captured graph.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch.fx import GraphModule

from sot.backends import kept_graphs
from sot.backends.errors import BackendUnavailableError, OptionsError
from sot.graph import random_numbers
from sot.torch_compat import compilers
from sot.torch_compat.dynamo import inputs
from sot.torch_compat.graphs import is_lazy
from sot.torch_compat.inductor import vector_instructions
from sot.torch_compat.inductor.compiled_modules import Notes
from sot.torch_compat.inductor.own_functions import caching_own_functions

INDUCTOR, AOT_EAGER = "inductor", "aot_eager"

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
    if name == INDUCTOR:
        return      # it is part of torch, and to look takes an import of half a second
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


def check_options(options: Mapping[str, Any]) -> None:
    """Raise OptionsError for an option that inductor does not have, or a value of another type."""
    known = compilers.known_options()
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise OptionsError(f"inductor has no option {name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        kind = compilers.kind_of_option(name)
        if kind is not None and not isinstance(value, kind):
            wanted = getattr(kind, "__name__", kind)
            raise OptionsError(f"inductor's option {name!r} is {wanted}, not {value!r} ({type(value).__name__})")


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
        if self.name == INDUCTOR:
            check_options(chosen)
        return DynamoBackend(self.name, chosen)

    @property
    def makes_kernels(self) -> bool:
        """Whether it makes kernels of operations, which takes much longer than to trace them."""
        return self.name == INDUCTOR

    @property
    def draws_as_eager(self) -> bool:
        """Whether a compiled graph draws the random numbers that PyTorch would draw."""
        return self.name == AOT_EAGER or self.name == INDUCTOR and bool(self.settings.get(compilers.DRAWS_AS_EAGER))

    @property
    def keeps_constants(self) -> bool:
        """Whether a graph compiled now, for inference, may compute with the values of weights."""
        return self.name == INDUCTOR and compilers.freezes_weights(self.options) and not torch.is_grad_enabled()

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if not self.keeps_constants:
            return self.compiled(gm, example_inputs)
        frozen, left = inputs.with_constants(gm, example_inputs)
        if len(left) == len(example_inputs):
            return self.compiled(gm, example_inputs)
        compiled = self.compiled(frozen, [example_inputs[i] for i in left])
        return lambda *args: compiled(*[args[i] for i in left])

    def compiled(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.name == INDUCTOR and any(isinstance(v, torch.Tensor) and is_lazy(v) for v in example_inputs):
            return gm.forward       # its kernels read memory, which does not hold the elements
        key = kept_graphs.key_of(gm, example_inputs, self.settings) if self.name == INDUCTOR else None
        if key is None or kept_graphs.is_refused(key):
            return self.compiled_anew(gm, example_inputs)
        if (found := kept_graphs.find(key)) is not None:
            return found
        notes = Notes()
        made = self.compiled_anew(gm, example_inputs, notes)
        if not notes.graphs:        # AOTAutograd's cache had it, so nothing was noted
            with compilers.without_cache_of_autograd():
                made = self.compiled_anew(gm, example_inputs, notes)
        kept_graphs.keep(key, notes, len(example_inputs))
        return made

    def compiled_anew(self, gm: GraphModule, example_inputs: Sequence[Any], notes: Notes | None = None,
                      ) -> Callable[..., Any]:
        check_requirements(self.name)
        compile_graph, arguments = compilers.dynamo_backend(self.name), self.arguments()
        if notes is not None:
            arguments["inner_compile"] = notes.compile_inner
        gm, reads = inputs.with_sizes(gm)
        mode, fakes = compilers.fake_inputs(gm, [*example_inputs, *inputs.sizes_of(example_inputs, reads)])
        with compilers.compiling(mode), caching_own_functions(), self.vector_instructions():
            made = inputs.giving_sizes(compile_graph(gm, fakes, **arguments), reads)
            if notes is not None:
                notes.metadata = compilers.autograd_metadata()
            return made

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options, and for inductor that random numbers are eager's, which it leaves to an option."""
        if self.name == INDUCTOR and random_numbers.way() == "eager":
            return {**compilers.EAGER_NUMBERS, **self.options}
        return self.options

    def vector_instructions(self) -> AbstractContextManager[Any]:
        return vector_instructions.taken_as_known() if self.name == INDUCTOR else nullcontext()

    def arguments(self) -> dict[str, Any]:
        if not self.settings:
            return {}
        return {"config_patches" if self.name == INDUCTOR else "options": dict(self.settings)}
