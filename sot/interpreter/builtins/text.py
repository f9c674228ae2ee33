"""Text: str, repr, format, % and join. Constants are formatted at once, containers part by part."""
from __future__ import annotations

import itertools
import operator
import re
import string
from typing import TYPE_CHECKING, Any

import torch

from sot.interpreter.builtins import iteration, special_methods
from sot.interpreter.builtins.common import (
    NOT_IMPLEMENTED,
    fold,
    foldable,
    hosts,
    is_native,
    run_native,
    slot,
    take,
)
from sot.interpreter.numpy_ops import numpy_functions
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.torch_ops import deferred_scalars
from sot.polyfills import text as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import ABSENT, Const, Opaque, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.iterators import SliceValue
from sot.values.objects import DictValue, ListValue, MappingProxy, SetValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.text import (
    ShownTensor,
    TextValue,
    joined,
    made_later,
    number_text,
    percent_of_numbers,
    text_of_container,
)

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

CONTAINERS = (ListValue, TupleValue, DictValue, SetValue, MappingProxy)
PERCENT = re.compile(r"%(\((?P<name>[^)]*)\))?[-#0 +]*[\d*]*(\.[\d*]*)?[hlL]?(?P<kind>[diouxXeEfFgGcrsa%])")
SHOWN_OF_CLASSES = ("__module__", "__qualname__")
SIMPLE = (Const, SliceValue, *CONTAINERS)


def written(m: Machine, function: Any, value: Value, *names: str) -> Value | None:
    """``str``, ``repr`` or ``format`` of a nested constant whose methods are not user code."""
    if not is_written_by_libraries(m, value, *names):
        return None
    for part in parts(m, value):
        if isinstance(part, Const) and isinstance(part.unguarded, type):
            for name in SHOWN_OF_CLASSES:
                part.load_attr(m, name).constant()
    if isinstance(value, CONTAINERS) and function is not ascii and (
            shown := text_of_container(m, function.__name__, value)) is not None:
        return shown
    found = hosts(m, [value])
    return None if found is None else run_native(m, function, found[0])


def is_written_by_libraries(m: Machine, value: Value, *names: str) -> bool:
    """Whether it consists of constants whose methods of these names are not user code. No value is read for this."""
    return isinstance(value, SIMPLE) and all(
        isinstance(v, SIMPLE) and library_only(m, v, names) for v in parts(m, value))


def parts(m: Machine, value: Value) -> list[Value]:
    """A value and everything inside it. A value may contain itself."""
    found: list[Value] = [value]
    seen: set[int] = set()
    for item in found:
        if isinstance(item, CONTAINERS):
            if id(item) in seen:
                continue
            seen.add(id(item))
            found += item.items_list(m) or []
            if isinstance(item, DictValue):
                found += item.values(m)
    return found


def library_only(m: Machine, value: Value, names: tuple[str, ...]) -> bool:
    if isinstance(value, Const):
        return all(foldable(value, name) for name in names)
    return all(is_native(slot(m, value, name)) for name in names)


@handles(str)
def str_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, encoding, errors = take("str", args, kwargs, "object", "encoding", "errors")
    if value is None:
        return Const("")
    if value.pytype is str:
        return value
    if encoding is not None or errors is not None:
        found = hosts(m, [v for v in (value, encoding, errors) if v is not None])
        if found is None:
            raise Break(Reason.UNSUPPORTED, "str() of bytes")
        return run_native(m, str, *found)
    return described(m, str, value, "__str__")


@handles(repr)
def repr_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return described(m, repr, take("repr", args, kwargs, "obj", required=1)[0], "__repr__")


@handles(ascii)
def ascii_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = written(m, ascii, take("ascii", args, kwargs, "obj", required=1)[0], "__repr__")
    if found is None:
        raise Break(Reason.UNSUPPORTED, "ascii() of an object")
    return found


def described(m: Machine, function: Any, value: Value, name: str) -> Value:
    value = numpy_functions.shown(m, value)
    if isinstance(value, DeferredScalar):
        return deferred_scalars.text(value, f"{function.__name__}({{}})", function, "")
    found = written(m, function, value, name, "__repr__")
    if found is not None:
        return found
    if isinstance(value, TensorValue):
        return TextValue([ShownTensor(m, value, f"{function.__name__}({{}})")])
    raw = slot(m, value, name)
    if raw is object.__str__:
        raw = slot(m, value, "__repr__")
        name = "__repr__"
    if isinstance(value, Opaque) or (is_native(raw) and HANDLERS.find(raw) is None):
        raise Break(Reason.UNSUPPORTED, f"{function.__name__} of {value}")
    return special_methods.by_method(m, function, value, name)


@handles(list.__repr__, tuple.__repr__, dict.__repr__)
def container_repr(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = args
    found = written(m, repr, value, "__repr__") if value.pytype in (list, tuple, dict) else None
    if found is not None:
        return found
    for base, function in ((list, polyfill.list_repr), (tuple, polyfill.tuple_repr), (dict, polyfill.dict_repr)):
        if issubclass(value.pytype, base):
            argument = function.__code__.co_varnames[0]
            if any(f.native is function.__code__ and f.locals.get(argument) is value for f in m.frames):
                return Const({list: "[...]", tuple: "(...)", dict: "{...}"}[base])     # it contains itself
            return m.enter(function, [value])
    raise Break(Reason.UNSUPPORTED, f"repr of {value}")


@handles(object.__str__)
def object_str(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return described(m, repr, args[0], "__repr__")


@handles(object.__repr__)
def object_repr(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.UNSUPPORTED, f"the address of {args[0]}")


@handles(format)
def format_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, spec = take("format", args, kwargs, "value", "format_spec", required=1)
    spec, value = spec or Const(""), numpy_functions.shown(m, value)
    if isinstance(spec, TextValue):
        raise Break(Reason.UNSUPPORTED, "a format string that is made after the graph")
    if isinstance(value, DeferredScalar):
        form = spec.constant()
        return deferred_scalars.text(value, f"format({{}}, {escaped(form)})", lambda v: format(v, form), form)
    if isinstance(value, CONTAINERS) and slot(m, value, "__format__") is object.__format__:
        return object_format(m, [value, spec], {})
    if is_written_by_libraries(m, value, "__format__", "__str__", "__repr__") and (
            given := hosts(m, [value, spec])) is not None:
        return run_native(m, format, *given)
    if isinstance(value, TextValue):
        if spec.constant():
            raise Break(Reason.UNSUPPORTED, "formatting of text that is made after the graph")
        return value
    if isinstance(value, TensorValue) and spec.pytype is str and takes_format(value, spec.constant()):
        return TextValue([ShownTensor(m, value, f"format({{}}, {escaped(spec.constant())})")])
    raw = slot(m, value, "__format__")
    if isinstance(value, Opaque) or (is_native(raw) and HANDLERS.find(raw) is None):
        raise Break(Reason.UNSUPPORTED, f"format of {value}")
    return special_methods.by_method(m, format, value, "__format__", spec)


@handles(object.__format__)
def object_format(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, spec = args
    if spec.constant():
        m.throw(TypeError, f"unsupported format string passed to {value.pytype.__name__}.__format__")
    return str_(m, [value], {})


def takes_format(tensor: TensorValue, spec: str) -> bool:
    """Whether a tensor may be formatted like this, whatever its value."""
    if not spec:
        return True
    if tensor.fake.dim() > 0 or tensor.fake.is_complex():
        return False
    try:
        format(torch.ones((), dtype=tensor.fake.dtype).item(), spec)
    except ValueError:
        return False
    return not spec.endswith("c")       # for small numbers only


def escaped(text: str) -> str:
    """A literal, escaped for a template with a placeholder."""
    return repr(text).replace("{", "{{").replace("}", "}}")


@handles(str.join)
def join(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    separator, iterable = take("join", args, kwargs, "self", "iterable", required=2)
    items = iteration.known_items(m, iterable)
    if items is None:
        return m.enter(polyfill.join, [separator, iterable])
    if made_later(separator, *items):
        return joined([piece for item in items for piece in (separator, item)][1:])
    found = hosts(m, items)
    if found is None:
        raise Break(Reason.OPAQUE_VALUE, "a string made at run time")
    return run_native(m, str.join, separator.constant(), found)


@handles(bytes.join)
def bytes_join(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    separator, iterable = take("join", args, kwargs, "self", "iterable", required=2)
    found = hosts(m, iteration.known_items(m, iterable) or [])
    if found is None:
        raise Break(Reason.OPAQUE_VALUE, "bytes made at run time")
    return run_native(m, bytes.join, separator.constant(), found)


@handles(str.__mod__)
def percent(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    text, values = take("__mod__", args, kwargs, "self", "value", required=2)
    if not isinstance(text, Const):     # of a subclass, or with a number that is read after the graph
        raise Break(Reason.UNSUPPORTED, f"% formatting with {text}")
    if isinstance(values, DictValue):
        text, values = without_names(m, text, values)
    if (shown := percent_of_numbers(m, text, values)) is not None:
        return shown
    if is_written_by_libraries(m, values, "__str__", "__repr__") and (found := hosts(m, [text, values])) is not None:
        return run_native(m, str.__mod__, *found)
    given = m.settle(values.items) if isinstance(values, TupleValue) else [values]
    pieces = percent_pieces(text.constant())
    wanted = sum(isinstance(p, tuple) for p in pieces or ())
    if pieces is None or isinstance(values, DictValue) or wanted != len(given):
        raise Break(Reason.UNSUPPORTED, "% formatting of these values")
    if not wanted:
        return Const("".join(str(p) for p in pieces))
    if len(pieces) == 1:
        return percent_one(m, text, given[0])
    rest = iter(given)
    return m.enter(polyfill.percent_pieces, [TupleValue([
        TupleValue([Const(p[0]), next(rest)]) if isinstance(p, tuple) else Const(p) for p in pieces])])


def without_names(m: Machine, text: Value, values: DictValue) -> tuple[Value, Value]:
    """``"%(a)d" % {"a": n}`` as ``"%d" % (n,)``; unchanged if it cannot be written so."""
    fields = [field for field in PERCENT.finditer(text.constant()) if field["kind"] != "%"]
    names = [field["name"] for field in fields]
    if values.pytype is not dict or not all(name in values.keys(m) for name in names) or any(
            "*" in field[0] for field in fields):
        return text, values
    form = PERCENT.sub(lambda field: field[0].replace(field[1] or "", "", 1), text.constant())
    if not fields or "%(" in form:      # a name without an end
        return text, values
    return Const(form), TupleValue([values.get(m, name) for name in names])


def percent_pieces(text: str) -> list[str | tuple[str]] | None:
    """The text between the fields, and the fields as tuples; None if a field takes more than one value."""
    pieces: list[str | tuple[str]] = []
    end = 0
    for field in PERCENT.finditer(text):
        if field["name"] or "*" in field[0]:
            return None
        pieces += [text[end:field.start()], "%" if field["kind"] == "%" else (field[0],)]
        end = field.end()
    pieces.append(text[end:])
    if any(isinstance(p, str) and "%" in p and p != "%" for p in pieces):
        return None
    return [p for p in pieces if p]


def percent_one(m: Machine, text: Value, value: Value) -> Value:
    """Format a single field with a value that is not constant."""
    field, value = text.constant(), numpy_functions.shown(m, value)
    if isinstance(value, TensorValue):
        if not takes_percent(value, field):
            raise Break(Reason.TENSOR_VALUE, "formatting a tensor")
        return TextValue([ShownTensor(m, value, f"({escaped(field)} % ({{}},))")])
    if isinstance(value, DeferredScalar):
        return deferred_scalars.text(value, f"({escaped(field)} % ({{}},))", lambda v: field % v, field)
    if field[-1] == "r":
        return m.enter(polyfill.percent_repr, [Const(field[:-1] + "s"), value])
    if field[-1] != "s":
        raise Break(Reason.UNSUPPORTED, "% formatting of this value")
    if value.pytype is not str:
        return m.enter(polyfill.percent, [text, value])
    if field != "%s":
        raise Break(Reason.UNSUPPORTED, "% formatting of text that is made after the graph")
    return value


def takes_percent(tensor: TensorValue, field: str) -> bool:
    """Whether a tensor may be formatted like this, whatever its value."""
    if field[-1] in "sr":
        return True
    dtype = tensor.fake.dtype
    if tensor.fake.numel() != 1 or tensor.fake.requires_grad or dtype.is_complex:
        return False
    return field[-1] in "eEfFgG" if dtype.is_floating_point else field[-1] in "dieEfFgG"


@handles(vars(str)["__rmod__"])
def reflected_percent(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NOT_IMPLEMENTED


@handles(str.format)
def str_format(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    text, *values = args
    form, count = text.constant(), len(values)
    prefixes = [""] * count + [f"{name}=" for name in kwargs]
    shown = None if looks_deeper(form) else number_text([*values, *kwargs.values()],
                        lambda *v: form.format(*v[:count], **dict(zip(kwargs, v[count:], strict=True))),
                        lambda *codes: f"{form!r}.format({', '.join(map(operator.add, prefixes, codes))})")
    if shown is not None:
        return shown
    given = [*values, *kwargs.values()]
    if all(is_written_by_libraries(m, v, "__format__", "__str__", "__repr__") for v in given) and (
            found := hosts(m, given)) is not None:
        named = dict(zip(kwargs, found[len(values):], strict=True))
        return run_native(m, str.format, form, *found[:len(values)], **named)
    pieces = format_pieces(form, values, kwargs)
    if pieces is None:
        raise Break(Reason.UNSUPPORTED, "str.format of objects")
    return m.enter(polyfill.format_pieces, [TupleValue(pieces)])


def looks_deeper(text: str) -> bool:
    """Whether a template has fields that read attributes or items of a value, or a format that is a value. A different
    value might be refused.
    """
    try:
        return any(re.search(r"[.\[]", field or "") or "{" in (spec or "")
                   for _, field, spec, _ in string.Formatter().parse(text))
    except ValueError:
        return False


FIELD = re.compile(r"(?P<first>[^.\[]*)(?P<path>(?:\.[^.\[]+|\[[^\]]+\])*)")
STEP = re.compile(r"\.([^.\[]+)|\[([^\]]+)\]")


def format_pieces(text: str, values: list[Value], kwargs: dict[str, Value]) -> list[Value] | None:
    """The text between the fields, and each field as (value, steps, conversion, format). None if Python raises."""
    count, kinds = itertools.count(), set()

    def pieces_of(text: str, depth: int) -> list[Value]:
        pieces: list[Value] = []
        for literal, field, spec, conversion in string.Formatter().parse(text):
            pieces.append(Const(literal))
            if field is None:
                continue
            if depth > 1 or (conversion or "s") not in "sra" or (parts := FIELD.fullmatch(field)) is None:
                raise ValueError
            first, path = parts["first"], STEP.findall(parts["path"])
            if not first or first.isdigit():
                kinds.add(bool(first))
            value = values[int(first or next(count))] if first.isdigit() or not first else kwargs[first]
            steps = [Const((name, int(key) if key.isdecimal() else key)) for name, key in path]
            inner = Const(spec) if "{" not in (spec or "") else TupleValue(pieces_of(spec or "", depth + 1))
            pieces.append(TupleValue([value, TupleValue(steps), Const(conversion), inner]))
        return pieces
    try:
        pieces = pieces_of(text, 0)
    except (KeyError, IndexError, ValueError):
        return None
    return pieces if len(kinds) < 2 else None


@handles(str.format_map)
def str_format_map(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = hosts(m, args)
    if found is None:
        raise Break(Reason.UNSUPPORTED, "str.format_map")
    return run_native(m, str.format_map, *found)


# ---- regular expressions ------------------------------------------------------------------------------------------
def _substitution(method: Any, follow: Any) -> None:
    @handles(method)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """With a function of the program, which is called for each match."""
        if (found := fold(m, method, args, kwargs)) is not None:
            return found
        pattern, function, text, count = take(
            method.__name__, args, kwargs, "self", "repl", "string", "count", required=3)
        known = hosts(m, [pattern, text, Const(0) if count is None else count])
        if known is None or type(known[1]) is not str or not isinstance(known[2], int) or lookup(
                m, function.pytype, "__call__")[0] is ABSENT:
            raise Break(Reason.UNSUPPORTED, f"{method.__qualname__} of values made at run time")
        try:
            matches = itertools.islice(known[0].finditer(known[1]), max(known[2], 0) if known[2] else None)
        except TypeError as e:      # the pattern is one of bytes
            return m.throw(TypeError, *e.args)
        return m.enter(follow, [function, Const(known[1]), TupleValue([Const(match) for match in matches])])


_substitution(re.Pattern.sub, polyfill.substituted_text)
_substitution(re.Pattern.subn, polyfill.substituted)
