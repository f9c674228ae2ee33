"""The tables that modules fill as they are imported: a key is set once, and an error names both places."""
from __future__ import annotations

import pytest

from sot.support.registry import HANDLERS, POLYFILLS, Registry


def one():
    return 1


def two():
    return 2


def test_a_second_row_for_a_key_is_refused_and_says_where_the_first_was():
    table: Registry = Registry("a row")
    table.add("a")(one)
    with pytest.raises(ValueError, match=r"a row for 'a' is registered at \S*test_registry\.py:\d+, and was at "
                                         r"\S*test_registry\.py:\d+"):
        table.add("a")(two)
    assert table["a"] is one


def test_two_names_of_one_key_may_set_the_same_row():
    table: Registry = Registry("a row")
    table.add(IOError, OSError)(one)
    assert table == {OSError: one}


def test_a_key_that_cannot_be_hashed_has_no_row():
    assert Registry("a row").find([]) is None
    assert HANDLERS.find(len) is not None


def test_no_callable_has_both_a_handler_and_a_polyfill():
    assert not HANDLERS.keys() & POLYFILLS.keys()
