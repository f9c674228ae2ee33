"""What C code keeps in exceptions besides their arguments, and exceptions that C or library code raises."""
from __future__ import annotations

import json

import torch
from harness import Programs, chain, check

X = torch.arange(1.0, 5.0)
program = Programs()


class Missing(FileNotFoundError):
    def __init__(self, path):
        super().__init__(2, "not here", path)
        self.extra = 3


class Plain(OSError):
    pass


@program
def text_that_is_no_json(x):
    found = []
    for text in ("{", "nope", "[1,]"):
        try:
            json.loads(text)
        except json.JSONDecodeError as e:
            found.append((e.msg, e.pos, e.lineno, str(e), chain(e)))
    return x + 1, found


@program
def json_of_what_it_cannot_write(x):
    try:
        json.dumps({1, 2})
    except TypeError as e:
        return x + 1, str(e), chain(e)


@program
def raised_while_another_is_handled(x):
    try:
        raise KeyError("first")
    except KeyError:
        try:
            json.loads("nope")
        except ValueError as e:
            return x + 1, chain(e)


@program
def text_that_is_not_decoded(x):
    try:
        b"\xff".decode("utf-8")
    except UnicodeDecodeError as e:
        return x * 2, str(e), e.args, e.start, e.reason, e.object, e


@program
def numbers_of_errors(x):
    found = []
    for e in (OSError(2, "gone", "f"), FileNotFoundError(2, "gone"), OSError("text"), OSError(), Missing("p"),
              Plain(13, "denied", "a", None, "b"), PermissionError("m")):
        found.append((type(e), str(e), repr(e), e.args, e.errno, e.strerror, e.filename, e.filename2))
    return x + 1, found, Missing("q").extra


@program
def raised_and_caught(x):
    try:
        raise OSError(17, "there", "f")
    except FileExistsError as e:
        return x * 2, e, e.filename


@program
def other_fields(x):
    try:
        raise SyntaxError("bad", ("f.py", 1, 2, "text"))
    except SyntaxError as e:
        found = str(e), e.lineno, e.msg, e.filename
    try:
        raise ImportError("none", name="n", path="p")
    except ImportError as e:
        return x * 2, found, e.name, e.path, str(e), e, SystemExit(3).code, SystemExit().code


@program
def names_given(x):
    e, f = AttributeError("a", name="n", obj=x), NameError("b", name="m")
    return x * 2, e.name, e.obj is x, f.name, str(e), e.args


@program
def made_of_wrong_arguments(x):
    found = []
    for make in (lambda: UnicodeDecodeError("utf-8"), lambda: SyntaxError("a", 1), lambda: ImportError("a", nam=1)):
        try:
            make()
        except Exception as e:
            found.append((type(e), str(e)))
    return x + 1, found


@program.each
def test_programs(fn):
    check(fn, X, graphs=1, breaks=0)


def decodes_after_the_graph(x):
    y = x * 2
    b"\xff".decode("utf-8")
    return y


def test_exceptions_that_leave():
    check(decodes_after_the_graph, X)
