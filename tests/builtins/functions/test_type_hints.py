"""``typing.get_type_hints`` of functions that a call makes, and ``singledispatch``, which asks for them."""
from __future__ import annotations

import functools
import typing

import pytest
import torch
from harness import Programs, check

X = torch.arange(1.0, 5.0)
Whole = typing.Annotated[int, "whole"]
Nested = typing.List["int"]     # noqa: UP006 -- text within
Unknown = typing.List["Undefined"]     # noqa: F821, UP006
program = Programs()


@program
def what_typing_makes_of_them(x):
    def f(a: Whole, b: int | None = None, c: None = None, *, d: typing.Literal["text"] = "text") -> Whole:
        return a
    return x + 1, typing.get_type_hints(f), typing.get_type_hints(f, include_extras=True)


@program
def names_that_are_not_there(x):
    def f(a: int, b: Undefined):    # noqa: F821
        return a
    try:
        return x, typing.get_type_hints(f)
    except NameError as e:
        return x + 1, str(e)


@program
def registered_by_annotation(x):
    @functools.singledispatch
    def kind(v):
        return "other"

    @kind.register
    def _(v: int | str):
        return "plain"
    return x + 1, kind(1), kind("a"), kind(1.0)


@program.each
def test_programs(fn):
    check(fn, X, graphs=1, breaks=0)


def text_within(x):
    def f(a: Nested):
        return a
    return x + 1, typing.get_type_hints(f)


def text_within_that_is_wrong(x):
    def f(a: Unknown):
        return a
    try:
        return x, typing.get_type_hints(f)
    except NameError as e:
        return x + 1, str(e)


def unknown_for_dispatch(x):
    @functools.singledispatch
    def kind(v):
        return "other"
    try:
        @kind.register
        def _(v: Undefined):    # noqa: F821
            return "never"
    except (NameError, TypeError) as e:
        return x + 1, type(e), str(e)


@pytest.mark.parametrize("fn", [text_within, text_within_that_is_wrong, unknown_for_dispatch])
def test_text_that_typing_evaluates(fn):
    check(fn, X)
