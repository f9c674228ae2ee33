"""Pure functions of constants, called during capture if all arguments are constants.

The result of a pure function depends only on its arguments, and the call has no side effects. Functions with a handler
or polyfill are not looked up here.
"""
from __future__ import annotations

import binascii
import cmath
import colorsys
import dataclasses
import datetime
import decimal
import fnmatch
import importlib.metadata
import inspect
import json
import keyword
import math
import operator
import os.path
import posixpath
import re
import string
import struct
import sys
import textwrap
import types
import typing
import zlib
from typing import Any

import numpy as np
import torch

from sot.torch_compat.functions import CONFIGURATION, order_of_groups

DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
NOT_PURE = frozenset({"__new__", "__init__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__setattr__",
                      "__delattr__", "__reduce__", "__reduce_ex__", "__sizeof__", "__dir__", "__class_getitem__",
                      "__getstate__", "__iter__", "__getnewargs__",
                      # these depend on time zone and language
                      "astimezone", "timestamp", "strftime", "fromtimestamp"})
# They turn numbers and lists of numbers into NumPy numbers. Their warnings are left to Python.
NUMPY = (*{v for v in vars(np).values() if isinstance(v, np.ufunc)}, np.prod, np.sum, np.mean, np.max, np.min,
         np.round, np.clip, np.isclose, np.any, np.all, np.std, np.var, np.argmax, np.argmin, np.ndim, np.isscalar,
         np.result_type, np.dtype, np.finfo, np.iinfo, np.can_cast, np.promote_types, np.issubdtype,
         *(v for v in vars(np).values() if isinstance(v, type) and issubclass(v, (np.number, np.bool_))))
DATES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
TYPES: tuple[type, ...] = (np.generic, str, bytes, int, float, complex, bool, range, slice, tuple, frozenset,
                           type(None), type(Ellipsis), re.Pattern, re.Match, torch.dtype, torch.device, torch.Size,
                           torch.finfo, torch.iinfo, torch.layout, torch.memory_format, types.UnionType,
                           types.GenericAlias, decimal.Decimal, *DATES)
MODULES = (math, cmath, operator, posixpath, fnmatch, textwrap, keyword, colorsys)
MODULE_EXCEPTIONS = frozenset({
    *(getattr(os.path, n) for n in ("exists", "lexists", "isfile", "isdir", "islink", "ismount", "getsize", "getmtime",
                                    "getatime", "getctime", "abspath", "realpath", "relpath", "expanduser",
                                    "expandvars", "samefile", "sameopenfile", "samestat")),
    operator.attrgetter, operator.itemgetter, operator.methodcaller, operator.setitem, operator.delitem})
BUILTINS = (ascii, bin, chr, hex, oct, ord, len, abs, round, divmod, pow, int, float, complex, bool, str, bytes, range,
            slice, format, repr)
REGEX = (re.compile, re.match, re.fullmatch, re.search, re.sub, re.subn, re.split, re.findall, re.escape)
OF_BYTES = (struct.pack, struct.unpack, struct.unpack_from, struct.calcsize, binascii.hexlify, binascii.unhexlify,
            binascii.b2a_base64, binascii.a2b_base64, binascii.crc32, zlib.crc32, zlib.adler32)
TYPING = (typing.get_origin, typing.get_args,
          dataclasses.is_dataclass, inspect.isclass, inspect.isfunction, inspect.ismodule, inspect.isabstract,
          inspect.isbuiltin, inspect.isroutine, inspect.iscoroutinefunction, inspect.isgeneratorfunction,
          inspect.cleandoc, inspect.getdoc)
TORCH = (torch.device, torch.finfo, torch.iinfo, torch.promote_types, torch.can_cast, torch.result_type,
         torch.cuda.is_available, torch.cuda.device_count, torch.cuda.get_device_capability, torch.cuda.is_initialized,
         torch.backends.mps.is_available, torch.backends.mps.is_built, torch.backends.cudnn.is_available,
         torch.backends.mkldnn.is_available, torch.backends.mkl.is_available, torch.backends.cuda.is_built,
         torch.distributed.is_available, torch.typename, torch.get_num_interop_threads,
         torch.backends.cpu.get_cpu_capability, torch.backends.openmp.is_available,
         torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled,
         torch.jit.is_scripting, torch.jit.is_tracing, *CONFIGURATION, torch.onnx.is_in_onnx_export,
         order_of_groups)


def _collect() -> set[Any]:
    found: set[Any] = {decimal.Decimal, *BUILTINS, *DATES, *REGEX, *OF_BYTES, *TYPING, *TORCH, *NUMPY,
                       string.capwords, os.fspath, json.dumps, json.loads, importlib.metadata.version, sys.intern,
                       types.CodeType.replace}
    for cls in TYPES:
        found |= {raw for name, raw in vars(cls).items() if isinstance(raw, DESCRIPTORS) and name not in NOT_PURE}
    for cls in (int, float, bytes, str, complex, decimal.Decimal):
        found |= {getattr(cls, name) for name, raw in vars(cls).items()
                  if isinstance(raw, types.ClassMethodDescriptorType)}
    found |= {str.maketrans, bytes.maketrans}
    for module in MODULES:
        found |= {f for name, f in vars(module).items() if not name.startswith("_") and isinstance(
            f, (types.BuiltinFunctionType, types.FunctionType))}
    return found - MODULE_EXCEPTIONS


PURE: set[Any] = _collect()
