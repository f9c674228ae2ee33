"""What holds for the whole test run, and fixtures that several tests use."""

import gc
import os
import shutil
from contextlib import suppress
from pathlib import Path

# Triton decides when it is imported whether its library is interpreted, and torch._dynamo, onnx and inductor import it.
os.environ.setdefault("TRITON_INTERPRET", "1")
# Tests are about what is captured, not about whether it pays; tests of that unset it.
os.environ.setdefault("SOT_BUDGET", "all")
os.environ.setdefault("SOT_VERIFY", "1")        # scheduled programs of kernels, by their verifier
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")     # the tests themselves take all cores

import pytest
import torch
from harness import Counter
from versions import skip_what_needs_newer_versions

import sot
from sot import _hook
from sot.torch_compat import native
from sot.torch_compat.global_state import autocast_nesting


def pytest_configure():
    """What is compiled against torch is there before the first test."""
    link_with_gold()
    native.build("tensors", "tally")


def link_with_gold():
    """Each kernel of Inductor is linked against libtorch, whose symbols take the usual linker 0.7 s and gold 0.1. The
    compiler looks for ``ld`` in COMPILER_PATH first.
    """
    gold, folder = shutil.which("ld.gold"), Path(__file__).parents[1] / "build" / "linker"
    if gold and "COMPILER_PATH" not in os.environ:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):     # of another process, or of an earlier run
            (folder / "ld").symlink_to(gold)
        os.environ["COMPILER_PATH"] = str(folder)


def pytest_sessionfinish():
    gc.unfreeze()       # libraries look for what is left of them at exit


def pytest_collection_modifyitems(items):
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    assert not named, f"an address in a test's name differs from process to process, so tests cannot be shared: {named}"
    skip_what_needs_newer_versions(items)


@pytest.fixture(scope="module", autouse=True)
def young_heap():
    """The collector looks only at what the tests of a module make. What is there before, with all of torch, takes it a
    second, and some tests collect often.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def fresh():
    """Nothing of earlier tests is cached, and nothing is left behind."""
    sot.reset()
    yield
    assert _hook.get_callback() is None
    sot.reset()


@pytest.fixture
def backend(fresh):
    """A backend that counts."""
    return Counter()


@pytest.fixture(autouse=True)
def global_state():
    """Every test leaves torch's modes and the project's settings as it found them, whatever it has interrupted."""
    before = modes(), settings()
    yield
    assert (modes(), settings()) == before


def settings():
    return {name: value for name, value in os.environ.items() if name.startswith("SOT_")}


def modes():
    return (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled(),
            torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), autocast_nesting())
