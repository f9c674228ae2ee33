"""Compiled kernels, in memory and in the cache, which processes share.

The key of a binary is the text of its kernel, its types, block sizes, hints, options and the kind of GPU. Triton's
metadata are beside it, as JSON. Triton compiles only binaries that are missing or damaged.
"""
from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

from sot.backends.triton import cache
from sot.backends.triton.source.kernel_source import without_comments

SUFFIX = ".cubin"
known: dict[tuple[str, int], CompiledKernel] = {}


def compiled(source: ASTSource, target: GPUTarget, options: dict[str, Any], device: int = 0) -> CompiledKernel:
    """The kernel, compiled for a kind of GPU. ``device`` is where it will be loaded."""
    key = key_of(source, target, options)
    found = known.get((key, device))
    if found is None:
        found = known[key, device] = _stored(key, source) or _made(key, source, target, options)
    return found


def has(source: ASTSource, target: GPUTarget, options: dict[str, Any], device: int = 0) -> bool:
    """Whether it is available without compilation."""
    key = key_of(source, target, options)
    return (key, device) in known or cache.find(key, SUFFIX) is not None


def key_of(source: ASTSource, target: GPUTarget, options: dict[str, Any]) -> str:
    asked = {"signature": source.signature, "constants": {str(k): v for k, v in source.constants.items()},
             "hints": {str(k): v for k, v in source.attrs.items()}, "options": options,
             "target": dataclasses.astuple(target)}
    return cache.key_of("binary", text_of(source.fn), json.dumps(asked, sort_keys=True), triton.__version__)


def text_of(kernel: Any) -> str:
    """The source of a kernel and of the functions of its module that it calls."""
    around = kernel.fn.__globals__
    called = [around.get(name) for name in dict.fromkeys(re.findall(r"\b(\w+)\(", kernel.src))]
    mine = [f for f in called if isinstance(f, JITFunction) and f is not kernel
            and f.fn.__module__ == kernel.fn.__module__]
    return "\n".join(without_comments(f.src) for f in (kernel, *mine))


def _stored(key: str, source: ASTSource) -> CompiledKernel | None:
    path = cache.find(key, SUFFIX)
    return None if path is None else _loaded(key, source, path)


def _made(key: str, source: ASTSource, target: GPUTarget, options: dict[str, Any]) -> CompiledKernel:
    made = triton.compile(source, target=target, options=options)
    facts = json.loads(json.dumps(made.metadata._asdict(), default=vars))      # in the form in which Triton writes them
    cache.add(key, made.asm["cubin"], made.metadata.name, SUFFIX, **facts)
    return made


def _loaded(key: str, source: ASTSource, path: Path) -> CompiledKernel:
    """Triton's object for an already compiled kernel, from its files."""
    return CompiledKernel(source, {"kernel.json": path.with_suffix(".json"), "kernel.cubin": path}, key)
