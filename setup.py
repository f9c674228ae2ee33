"""Declares the C extensions; everything else about the project is in pyproject.toml.

SOT_HOOK_DEBUG=1 builds a hook that counts what it keeps alive: _hook.debug_counts().

What is compiled against torch is optional. Without sot._tally reports miss the time of graphs; without sot._tensors,
or with another version of torch than it was built for, torch's own guards check the tensors, more slowly.
"""

import os

from setuptools import Extension, setup

debug = os.environ.get("SOT_HOOK_DEBUG", "0") not in ("", "0")

HOOK_HEADERS = ["_hook_compat.h", "_hook_slot.h", "_hook_tail.h", "_hook_direct.h", "_hook_callables.h", "_guards.h",
                "_guards_compat.h", "_guards_words.h", "_guards_making.h"]


def torch_extensions():
    """What is compiled against torch: left out where torch is not there yet."""
    try:
        import torch
        from torch.utils.cpp_extension import include_paths, library_paths
    except ImportError:
        return []
    version = torch.__version__.partition("+")[0]
    libraries = {"sot._tally": ["c10", "torch_cpu"], "sot._tensors": ["c10"]}
    return [
        Extension(
            name,
            sources=[name.replace(".", "/") + ".cpp"],
            depends=["sot/_guards.h"],
            include_dirs=include_paths(),
            library_dirs=library_paths(),
            libraries=libraries[name],
            define_macros=[("SOT_TORCH_VERSION", f'"{version}"')],
            extra_compile_args=["-std=c++20", "-O2", "-fno-strict-aliasing"],
            optional=True,
        )
        for name in libraries
    ]


setup(
    ext_modules=[
        Extension(
            "sot._hook",
            sources=["sot/_hook.c", "sot/_guards.c", "sot/_dicts.c", "sot/_setters.c", "sot/_entry.c"],
            depends=["sot/" + name for name in HOOK_HEADERS],
            define_macros=[("SOT_HOOK_DEBUG", "1")] if debug else [],
            extra_compile_args=["-std=c11", "-O2", "-fno-strict-aliasing"],
        ),
        *torch_extensions(),
    ]
)
