"""Graphs that Inductor has compiled, for later processes.

torch's own caches keep what Inductor compiles, but to find and load it takes most of the time of a first call: the
imports of Inductor and AOTAutograd, and the keys of two caches. Here a graph is looked up before these imports. A file
has the short form of Inductor's module (``sot/torch_compat/inductor/``). Its kernels stay in Inductor's own folder; if
one is missing or different, the graph is compiled again.

A key is a text of the graph, its inputs, versions, the processor, torch's state and all settings. torch's settings that
turn its caches off turn this one off, too.
"""
from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from sot.backends.errors import one_line
from sot.backends.triton import cache
from sot.graph.written import Incomparable, described, nodes_of, sharing
from sot.torch_compat.dynamo.inputs import STATIC_INPUT
from sot.torch_compat.inductor.compiled_modules import Kept, Notes
from sot.torch_compat.inductor.functions import name_of
from sot.torch_compat.inductor.module_text import Needs, Refused
from sot.torch_compat.inductor.settings import keeps_graphs, settings

BACKENDS = logging.getLogger("sot.backends")
TITLE = "a graph compiled by inductor"
REFUSED = "refused"


def key_of(gm: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    """The key of a graph with these inputs; None if it is not kept."""
    try:
        return key_or_raise(gm, inputs, options) if keeps_graphs() else None
    except Exception as error:      # mostly Incomparable; otherwise of any kind, because the graph can be compiled
        BACKENDS.debug("a graph has no key: %s", one_line(error))
        return None


def key_or_raise(gm: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    metadata = [described(value, value) for value in inputs]
    nodes = nodes_of(gm, named)
    marks = [(STATIC_INPUT in node.meta, bool(node.meta.get("custom"))) for node in gm.graph.nodes]
    around = settings()
    plain = all(isinstance(value, bool | int | float | str | None) for value in options.values())
    if sharing(inputs) != (*range(len(inputs)),) or around is None or not plain or any(custom for _, custom in marks):
        return None
    return cache.key_of(TITLE, repr((nodes, metadata, [static for static, _ in marks])), repr(sorted(options.items())),
                        around)


def named(function: Any) -> str:
    if (name := name_of(function)) is None:
        raise Incomparable
    return name


def find(key: str) -> Callable[..., Any] | None:
    """The compiled graph of this key, if there is one and it is not refused."""
    if (path := cache.find(key)) is None:
        return None
    try:
        facts = cache.about(path)
        needs = Needs(facts["functions"], {name: tuple(parts) for name, parts in facts["kernels"].items()})
        return Kept(path.read_text(), needs, facts["changed"], facts["leaves_autocast"]).compiled(str(path))
    except Exception as error:      # of any kind: it is compiled again
        BACKENDS.debug("a compiled graph cannot be loaded: %s", one_line(error))
        return None


def is_refused(key: str) -> bool:
    """Whether it is known that the compilation of this graph cannot be kept."""
    path = cache.find(key)
    return path is not None and bool(cache.about(path).get(REFUSED))


def keep(key: str, notes: Notes, inputs: int) -> None:
    """Keep the compilation of a graph with so many inputs. If that is not possible, keep the reason."""
    if not keeps_graphs():
        return
    facts: dict[str, Any]
    try:
        kept = notes.kept(inputs)
        content, facts = kept.source, {"changed": kept.changed, "leaves_autocast": kept.leaves_autocast,
                                       **dataclasses.asdict(kept.needs)}
    except Exception as error:      # mostly Refused; otherwise of any kind, because the graph is compiled
        reason = str(error).partition("\n")[0] if isinstance(error, Refused) else one_line(error)
        BACKENDS.debug("a compiled graph is not kept for later processes: %s", reason)
        content, facts = f"# Not kept: {reason}", {REFUSED: True}
    with contextlib.suppress(OSError):
        cache.add(key, content, TITLE, **facts)
