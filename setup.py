"""Declares the C extensions; everything else about the project is in pyproject.toml.

SOT_HOOK_DEBUG=1 builds a hook that counts what it keeps alive: _hook.debug_counts().

What is compiled against torch (sot/csrc/torch) is installed as source: sot/torch_compat/native.py compiles it on first
use, against the torch that is there then.
"""

import os
from glob import glob

from setuptools import Extension, setup

debug = os.environ.get("SOT_HOOK_DEBUG", "0") not in ("", "0")

CSRC = "sot/csrc"


setup(
    ext_modules=[
        Extension(
            "sot._hook",
            sources=sorted(glob(f"{CSRC}/hook/*.c") + glob(f"{CSRC}/guards/*.c")),
            depends=glob(f"{CSRC}/*/*.h"),
            include_dirs=[CSRC],
            define_macros=[("SOT_HOOK_DEBUG", "1")] if debug else [],
            extra_compile_args=["-std=c11", "-O2", "-fno-strict-aliasing", "-fvisibility=hidden",
                                "-Wall", "-Wextra", "-Wswitch-enum"],
        ),
    ]
)
