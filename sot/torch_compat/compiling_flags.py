"""What a program is told that asks whether it is being compiled (``torch.compiler.is_compiling()`` and its relatives).

Plain Python answers False, and capture must give Python's results. So the answer is False, except to the libraries of
``TOLD``: these are known to compute the same when they are told True, in a way that captures better. Others use the
question to leave work out: FSDP does not allocate its storages, DDP does not set itself up.
"""
from __future__ import annotations

import re

import torch

COMPILING_FLAGS = tuple(f for f in (
    torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
    getattr(torch._utils, "is_compiling", None)) if f is not None)

# By the dotted name of a package or module; the longest name that fits counts.
TOLD = {
    "torch.nn": True,                       # skips warnings of eager mode
    "torch.nn.modules.transformer": False,  # gives other values for padding
    "torch.nn.parallel": False,             # DistributedDataParallel does not set itself up
    "torch.optim": True,                    # reads no scalars of tensors, does not group tensors by device
    "torch._functorch": True,               # does not copy the attributes of wrapped functions
    "torch._higher_order_ops": True,        # does not compile what is being captured
    "torch.export": True,                   # runs a graph instead of interpreting its nodes
    "transformers": True,                   # masks are made without looking for padding, checks are assertions
    "transformers.models.csm": False,               # keeps position ids that it says it ignores
    "transformers.models.qwen2_audio": False,       # does not merge audio features as older processors want it
    "transformers.models.wav2vec2_bert": False,     # ranks of FSDP and DeepSpeed skip layers on their own
    "transformers.utils.deprecation": False,        # does not warn
}
QUESTION = re.compile(r"is_\w*(compiling|tracing)")     # a library's own function that passes the question on


def is_question(function: str) -> bool:
    """Is this the name of a function that does no more than ask?"""
    return QUESTION.fullmatch(function) is not None


def is_told(module: str) -> bool:
    """Is the code of a module, by its dotted name, told that it is being compiled?"""
    while module:
        if module in TOLD:
            return TOLD[module]
        module = module.rpartition(".")[0]
    return False
