"""Declares the C extension; everything else about the project is in pyproject.toml.

SOT_HOOK_DEBUG=1 builds an extension that counts what it keeps alive: _hook.debug_counts().
"""

import os

from setuptools import Extension, setup

debug = os.environ.get("SOT_HOOK_DEBUG", "0") not in ("", "0")

setup(
    ext_modules=[
        Extension(
            "sot._hook",
            sources=["sot/_hook.c"],
            depends=["sot/_hook_compat.h", "sot/_hook_tail.h"],
            define_macros=[("SOT_HOOK_DEBUG", "1")] if debug else [],
            extra_compile_args=["-std=c11", "-O2"],
        )
    ]
)
