"""load: a saved model as a module."""
from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sot.deploy.arguments import containers
from sot.deploy.errors import LoadError
from sot.deploy.layouts import check_metadata
from sot.deploy.module import set_weight
from sot.deploy.provenance import checked_digest, read_text
from sot.deploy.safety import damage_is_told, inspect_archive
from sot.deploy.saving import FORMAT, METADATA
from sot.deploy.sizes import check, check_conditions, check_ranges
from sot.deploy.structure import restored
from sot.support.tracebacks import public
from sot.torch_compat.exporting.archive import read_archive, with_examples


class Method:
    """A saved method. It takes its arguments by position or by name, as before."""

    def __init__(self, name: str, program: Any, layout: dict[str, Any]) -> None:
        self.program, self.graph = program, program.module()
        self.positional, self.keyword, self.constants = layout["positional"], layout["keyword"], layout["constants"]
        self.name, self.result, self.sizes = name, layout["result"], layout["sizes"]
        self.conditions = layout["conditions"]

    @public(every=True)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises TypeError for arguments that the method was not saved with."""
        names = [*self.positional, *self.keyword]
        given = self.constants | containers(dict(zip(names, args, strict=False)) | kwargs)
        if len(args) > len(names) or set(given) != set(names) or kwargs.keys() & set(names[:len(args)]):
            raise TypeError(f"this was saved with the arguments {', '.join(names)}; it got {len(args)} by position"
                            + (f" and {', '.join(kwargs)} by name" if kwargs else ""))
        leaves = pytree.tree_leaves([given[name] for name in names])
        if len(leaves) != len(self.sizes):
            raise TypeError(f"{self.name}: the arguments are containers of {len(leaves)} values; this was saved with "
                            f"{len(self.sizes)}")
        check(self.name, self.sizes, leaves)
        check_conditions(self.name, self.conditions, leaves)
        check_ranges(self.name, self.sizes, leaves)
        result = self.graph(*(given[name] for name in self.positional),
                            **{name: given[name] for name in self.keyword})
        return restored(result, self.result)


class LoadedModel(torch.nn.Module):
    """A saved model: its weights under their names, and its methods.

    A call runs ``forward``, or the method that was saved first. ``methods`` has all names. ``programs`` has the
    torch.export.ExportedProgram of each method, for example for ONNX or AOTInductor.
    """

    def __init__(self, methods: dict[str, Method], name: str, training: bool, source: dict[str, str]) -> None:
        super().__init__()
        self._sot_name, self._sot_calls = name, methods
        self.training, self._sot_source = training, source
        for method, call in methods.items():
            for weight, tensor in [*call.graph.named_parameters(), *call.graph.named_buffers()]:
                if weight not in self._weights():
                    set_weight(self, weight, tensor, weight in call.program.state_dict)
            if method != "forward":
                setattr(self, method, call)
        self._share()

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self._sot_calls)

    @property
    def provenance(self) -> dict[str, str]:
        """When the file was written and by which versions, and its digest."""
        return dict(self._sot_source)

    @property
    def programs(self) -> dict[str, Any]:
        return {method: with_examples(call.program) for method, call in self._sot_calls.items()}

    @public(every=True)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return (self._sot_calls.get("forward") or next(iter(self._sot_calls.values())))(*args, **kwargs)

    def train(self, mode: bool = True) -> LoadedModel:
        """Raises LoadError for another mode than that of the saved model, because a graph is for one mode."""
        if mode != self.training:
            was, other = ("train", "eval") if self.training else ("eval", "train")
            raise LoadError(f"{self._sot_name} was saved in {was} mode, and its graph computes that: save it in "
                            f"{other} mode, too")
        return self

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> LoadedModel:
        super()._apply(fn, recurse)     # this may replace buffers
        self._share()
        return self

    def _weights(self) -> dict[str, torch.Tensor]:
        return dict([*self.named_parameters(), *self.named_buffers()])

    def _share(self) -> None:
        """Make the graphs use the weights of this module, so that methods share one tensor per name."""
        weights = self._weights()
        for graph in (call.graph for call in self._sot_calls.values()):
            for name in [*dict(graph.named_parameters()), *dict(graph.named_buffers())]:
                path, _, last = name.rpartition(".")
                owner = graph.get_submodule(path)
                table: Any = owner._parameters if last in owner._parameters else owner._buffers
                table[last] = weights[name]

    def __repr__(self) -> str:
        return f"LoadedModel({self._sot_name}: {', '.join(self.methods)})"


@public()
def load(path: str | os.PathLike[str], *, digest: str | None = None, operators: Collection[str] = ()) -> LoadedModel:
    """The model that ``sot.save`` wrote to ``path + ".pt2"``. The program that made it is not needed.

    Arguments:
        path: the name of the file, with or without its ending.
        digest: the value of ``provenance["digest"]`` at an earlier load. A file that has changed since is refused.
        operators: names of libraries that you have imported and whose operators the file may call, such as
            ``["torchvision"]``.

    Raises LoadError for a file that is missing or damaged, has been changed, has another version, or could run code
    while it is read.
    """
    file = Path(f"{os.fspath(path).removesuffix('.pt2')}.pt2")
    if not file.is_file():
        raise LoadError(f"there is no {file}")
    inspect_archive(file, operators)
    with damage_is_told(file):
        metadata = metadata_of(file)
        source = metadata["provenance"] | {"digest": checked_digest(file, digest)}
        programs = read_archive(file)
        methods = {name: Method(name, programs[layout["program"]], layout)
                   for name, layout in metadata["methods"].items()}
        return LoadedModel(methods, metadata["name"], metadata["training"], source)


def metadata_of(file: Path) -> dict[str, Any]:
    """The description that sot.save has stored beside the programs."""
    try:
        found = read_text(file, METADATA)
        version = found["format"]
    except (KeyError, TypeError, ValueError) as e:
        raise LoadError(f"{file} was not written by sot.save: torch.export.load may read it") from e
    if version != FORMAT:
        raise LoadError(f"{file} is of format {str(version)[:20]}, and this version reads {FORMAT}")
    try:
        check_metadata(found)
    except LoadError as e:
        raise LoadError(f"{file} is not loaded: {e}") from None
    return found
