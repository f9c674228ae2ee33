"""Memory and views for code that is generated, without the parsing of arguments that torch's public functions do.

These are the functions of torch that the code of Inductor calls. They take a third of the time.

    empty_cpu(shape, strides, dtype), empty_cuda(shape, strides, dtype)     the second on the current device
    reinterpreted(tensor, shape, strides, offset)                           memory of ``tensor`` from this element on
"""
from typing import Any

from torch._C._dynamo import guards

_functions: Any = guards
empty_cpu, empty_cuda = _functions._empty_strided_cpu, _functions._empty_strided_cuda
reinterpreted = _functions._reinterpret_tensor
