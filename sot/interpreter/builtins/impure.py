"""Functions that read or change the world outside: random numbers, the clock, files, the environment.

Python calls them between two graphs. The tables here give the reason for reports. They also contain Python functions
that would break several times if they were followed.
"""
from __future__ import annotations

import _random
import asyncio
import builtins
import datetime
import io
import os
import pathlib
import pickle
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import types
import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from sot.interpreter.builtins.common import refuse
from sot.interpreter.builtins.pure import PURE
from sot.support.errors import Reason
from sot.support.registry import HANDLERS

CODE = (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType, type(np.random.Generator.random))
IO_BASE: Any = io.IOBase.__base__
FOLLOWED = frozenset({"__init_subclass__", "__repr__", "__str__", "__reduce__", "__getstate__", "__fspath__"})

Found = Iterable[tuple[str, Any]]


def functions(owner: Any, *names: str) -> Found:
    """Functions of a module or class: those with these names, or all that it defines."""
    for name, raw in vars(owner).items():
        found = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
        if isinstance(found, CODE) and (name in names if names else name not in FOLLOWED):
            yield f"{owner.__name__}.{name}()", found


def leave(reason: Reason, found: Found) -> None:
    for what, function in found:
        if function not in PURE and function not in HANDLERS:
            HANDLERS[function] = refuse(reason, what)


for _class in (random.Random, random.SystemRandom, _random.Random, np.random.RandomState, np.random.Generator):
    leave(Reason.RANDOM, functions(_class))
for _module in (np.random, secrets):
    leave(Reason.RANDOM, functions(_module))
leave(Reason.RANDOM, functions(os, "urandom"))
leave(Reason.RANDOM, functions(uuid, "uuid1", "uuid4"))

for _module in (time, subprocess, socket, shutil, tempfile):
    leave(Reason.SIDE_EFFECT, functions(_module))
leave(Reason.SIDE_EFFECT, [(f"{f.__qualname__}()", f) for f in (
    asyncio.Runner.run, asyncio.BaseEventLoop.run_until_complete, asyncio.BaseEventLoop.run_forever)])
leave(Reason.SIDE_EFFECT, functions(torch, "save", "load"))
leave(Reason.SIDE_EFFECT, functions(np, "set_printoptions"))
leave(Reason.SIDE_EFFECT, functions(pickle, "dump", "dumps", "load", "loads"))
leave(Reason.SIDE_EFFECT, functions(builtins, "open", "input", "compile"))
leave(Reason.SIDE_EFFECT, [(f"os.{f.__name__}()", f) for f in vars(os).values()
                           if isinstance(f, types.BuiltinFunctionType)])
leave(Reason.SIDE_EFFECT, functions(os, "makedirs", "removedirs", "renames", "walk", "popen"))
leave(Reason.SIDE_EFFECT, functions(type(os.environ), "__setitem__", "__delitem__"))
leave(Reason.SIDE_EFFECT, functions(
    pathlib.Path, *(name for name in vars(pathlib.Path) if not name.startswith("_"))))
for _stream in (io.StringIO, io.BytesIO, io.TextIOWrapper, io.FileIO, io.BufferedReader, io.BufferedWriter, IO_BASE):
    leave(Reason.SIDE_EFFECT, ((what, f) for what, f in functions(_stream) if f.__name__ != "__new__"))
leave(Reason.SIDE_EFFECT, [(f"{cls.__name__}.{name}()", getattr(cls, name)) for cls, names in (
    (datetime.datetime, ("now", "today", "utcnow")), (datetime.date, ("today",))) for name in names])
