"""What holds for the whole test run, and fixtures that several tests use."""

import os

# Triton decides when it is imported whether its library is interpreted, and torch._dynamo, onnx and inductor import it.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
from harness import Counter

import sot
from sot import _hook


@pytest.fixture
def backend():
    """A backend that counts; nothing of earlier tests is cached, and nothing is left behind."""
    sot.reset()
    yield Counter()
    assert _hook.get_callback() is None
    sot.reset()
