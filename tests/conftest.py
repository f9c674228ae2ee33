"""Fixtures that several tests use."""

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
