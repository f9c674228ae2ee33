"""CPython's own tests pass translated, or are named in cpython.EXPECTED with the reason why they cannot."""
import importlib.util

import cpython
import pytest


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("test.test_list") is None, reason="CPython's own tests are not installed")
@pytest.mark.parametrize("module", cpython.QUICK)
def test_of_cpython(module):
    found = cpython.compare(module)
    assert found.passing
    assert not found.failing
    assert "internal error" not in found.translated["captures"], found.translated["internal"]


def test_what_is_expected_to_fail_exists():
    """A name that no module has, or that passes by now, does not belong there."""
    assert {name.partition(".")[0] for name in cpython.EXPECTED} <= set(cpython.MODULES)
