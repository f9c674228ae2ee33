"""Declares the C extensions; everything else about the project is in pyproject.toml.

SOT_HOOK_DEBUG=1 builds a hook that counts what it keeps alive: _hook.debug_counts().
"""

import os

from setuptools import Extension, setup

debug = os.environ.get("SOT_HOOK_DEBUG", "0") not in ("", "0")


def torch_extensions():
    """What is compiled against torch: left out, and then missed by reports only, where torch is not there yet."""
    try:
        from torch.utils.cpp_extension import include_paths, library_paths
    except ImportError:
        return []
    return [Extension(
        "sot._tally",
        sources=["sot/_tally.cpp"],
        include_dirs=include_paths(),
        library_dirs=library_paths(),
        libraries=["c10", "torch_cpu"],
        extra_compile_args=["-std=c++20", "-O2"],
        optional=True,
    )]


setup(
    ext_modules=[
        Extension(
            "sot._hook",
            sources=["sot/_hook.c"],
            depends=["sot/_hook_compat.h"],
            define_macros=[("SOT_HOOK_DEBUG", "1")] if debug else [],
            extra_compile_args=["-std=c11", "-O2"],
        ),
        *torch_extensions(),
    ]
)
