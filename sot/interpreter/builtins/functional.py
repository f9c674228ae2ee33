"""functools and operator: callables built from callables."""
from __future__ import annotations

import functools
import operator
import types
import weakref
from collections.abc import Iterator
from types import NoneType
from typing import TYPE_CHECKING, Any

from sot.graph.builder import flagged_inputs, has_changed
from sot.guards.assumptions import RestartCapture
from sot.guards.cached_results import CACHED, NOT_CACHED, CachedResult, result_of
from sot.guards.guards import IsGuard, TypeGuard
from sot.guards.library_functions import ResultGuard
from sot.guards.origin import Origin, known
from sot.guards.terms import leaves
from sot.interpreter.builtins.common import hosts, is_native, key_of, run_native, slot, take
from sot.interpreter.loop import evaluate
from sot.interpreter.objects.names_used import is_of_arguments, may_reach
from sot.interpreter.wrapping import per_call
from sot.polyfills import functional as polyfill
from sot.polyfills.builtin import type_call
from sot.support.errors import Break, PyRaise, Reason
from sot.support.places import is_installed
from sot.support.registry import BY_CODE, HANDLERS, handles
from sot.values.base import ABSENT, NONE, Const, NotConstant, Value, boolean
from sot.values.callables import FunctionValue
from sot.values.constants import is_library
from sot.values.iterators import (
    DictIterator,
    GeneratorValue,
    IteratorValue,
    RangeIterator,
    ReversedIterator,
    SequenceIterator,
)
from sot.values.numbers import DynamicNumber
from sot.values.objects import DictValue, ExceptionValue, ListValue, ObjectValue, TupleValue
from sot.values.objects.partials import CachedFunction, KeyValue, PartialValue
from sot.values.objects.references import EmptyWeakDict
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap, wrap_known, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

partial = functools.partial


# ---- partial --------------------------------------------------------------------------------------------------
@handles(partial)
def new_partial(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return make_partial(m, partial, args, kwargs)


@handles(partial.__new__)
def partial_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return make_partial(m, args[0].constant(), args[1:], kwargs)


def make_partial(m: Machine, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A partial of a partial is a single partial, as in C."""
    if not args:
        m.throw(TypeError, "type 'partial' takes at least one argument")
    function, *given = args
    named = dict(kwargs)
    if isinstance(function, ObjectValue) and function.pytype is partial and not function.has_attrs:
        inner, before, keywords = parts_of(m, function)
        function, given, named = inner, [*before, *given], {**keywords, **named}
    table = DictValue(dict)
    table.overlay.update(named)
    made = PartialValue(cls)
    made.slots = {"func": function, "args": TupleValue(given), "keywords": table}
    return made


def parts_of(m: Machine, value: ObjectValue) -> tuple[Value, list[Value], dict[str, Value]]:
    function, given, keywords = (value.load_slot(m, n) for n in ("func", "args", "keywords"))
    if not isinstance(keywords, DictValue):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return function, given.items_list(m) or [], {k: keywords.get(m, k) for k in keywords.keys(m)}


@handles(partial.__call__)
def call_partial(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, *rest = args
    if not isinstance(self_, ObjectValue):
        raise Break(Reason.OPAQUE_VALUE, str(self_))
    function, given, keywords = parts_of(m, self_)
    return function.call(m, [*given, *rest], {**keywords, **kwargs})


# ---- functools --------------------------------------------------------------------------------------------------
@handles(CACHED.__call__)
def call_cached(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of a cached function. What the cache has is read under a guard, so that the program gets that object. If
    the cache does not have it, the function is called now, or at a break where the program could see the order.
    """
    self_, *rest = args
    if isinstance(self_, CachedFunction):
        keywords = DictValue(dict)
        keywords.overlay.update(kwargs)
        return m.enter(polyfill.call_cached, [self_.cache, self_.given[0], TupleValue(rest), keywords])
    real = self_.real
    if real is ABSENT:
        raise Break(Reason.OPAQUE_VALUE, str(self_))
    if self_.origin is not None and per_call(self_.origin):     # the next call has another cache
        raise Break(Reason.OPAQUE_CALL, f"{self_}, a cache that is made in the call,")
    if is_library(real.__module__) and all(is_global(a) for a in (*rest, *kwargs.values())):
        return remembered(m, real, rest, kwargs)
    varying = [n for a in (*rest, *kwargs.values()) for n in varying_numbers(m, a)]
    if varying and may_be_computed(m, real.__wrapped__, (*rest, *kwargs.values())):
        return compute(m, self_, rest, kwargs, varying)
    origin = self_.origin or known(real, real.__qualname__)
    given = [argument_of_cached(m, a) for a in (*rest, *kwargs.values())]
    m.guard(TypeGuard(origin, CACHED))
    reading = CachedResult(origin, tuple(o for o, _ in given), tuple(kwargs))
    positional, named = [v for _, v in given[:len(rest)]], {
        name: v for name, (_, v) in zip(kwargs, given[len(rest):], strict=True)}
    try:
        result = result_of(real, *positional, **named)
    except (LookupError, TypeError):
        raise Break(Reason.OPAQUE_CALL, f"{self_}, whose cache cannot be read,") from None
    if result is NOT_CACHED:
        result = first_result(m, reading, real, positional, named)
    return wrap(m, result, reading)


@handles(CACHED.__new__)
def new_cached(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What ``lru_cache`` makes of a function."""
    cls, *given = args
    if cls.constant() is not CACHED or len(given) != 4 or kwargs or not isinstance(given[1], Const) or not isinstance(
            given[2], Const):
        raise Break(Reason.OPAQUE_CALL, "a cached function")
    cache = evaluate(m, Const(polyfill.Cache), given[1:3])
    assert isinstance(cache, ObjectValue)
    return CachedFunction(given, cache)


@handles(CACHED.cache_clear)
def clear_cache(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.enter(polyfill.clear_cache, [made_cache(args[0])])


@handles(CACHED.cache_info)
def cache_info(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.enter(polyfill.cache_info, [made_cache(args[0]), args[0].given[3]])  # type: ignore[attr-defined]


def made_cache(value: Value) -> ObjectValue:
    if not isinstance(value, CachedFunction):
        raise Break(Reason.OPAQUE_CALL, f"the cache of {value}")
    return value.cache


def argument_of_cached(m: Machine, value: Value) -> tuple[Origin, Any]:
    """An argument of a cached function. Its hash must not run user code, because guards look for it in the cache."""
    if isinstance(value, Const) or value.origin is None or value.real is ABSENT:
        try:
            real = value.host(m)
        except NotConstant:
            raise Break(Reason.OPAQUE_CALL, f"a cached function of {value}") from None
        return known(real, repr(real)), real
    kind = type(value.real)
    if issubclass(kind, tuple) or any(isinstance(f, types.FunctionType) and not is_library(f.__module__)
                                      for f in (kind.__hash__, kind.__eq__)):
        raise Break(Reason.OPAQUE_CALL, f"a cached function of {value}")
    m.guard(TypeGuard(value.origin, kind))
    return value.origin, value.real


def varying_numbers(m: Machine, value: Value) -> Iterator[DynamicNumber]:
    """The numbers that vary in an argument, which may be a tuple."""
    if isinstance(value, DynamicNumber):
        if value.varies:
            yield value
    elif isinstance(value, TupleValue):
        for item in value.items_list(m) or ():
            yield from varying_numbers(m, item)


def may_be_computed(m: Machine, function: Any, args: tuple[Value, ...]) -> bool:
    """Whether a cached function may be followed for numbers that vary. A cache of the program itself may keep what has
    been changed since, so its functions get no objects, and return none (``only_numbers``).
    """
    return type(function) is types.FunctionType and is_of_arguments(function) and all(
        is_hashable(m, a) and (is_installed(function.__code__.co_filename) or is_of_numbers(m, a, TupleValue))
        for a in args)


def is_hashable(m: Machine, value: Value) -> bool:
    """Whether a cache takes an argument."""
    if isinstance(value, TupleValue):
        return all(is_hashable(m, item) for item in value.items_list(m) or ())
    return value.pytype.__hash__ is not None


def compute(m: Machine, function: Value, args: list[Value], kwargs: dict[str, Value],
            varying: list[DynamicNumber]) -> Value:
    """Follow a cached function, so that one capture is for all numbers: its results are numbers, and equal to those
    that the cache has.
    """
    if function.origin is not None:
        m.guard(IsGuard(function.origin, function.real))
    keywords = DictValue(dict)
    keywords.overlay.update(kwargs)
    return m.enter(polyfill.computed, [
        wrap_known(m, function.real.__wrapped__), TupleValue(args), keywords, TupleValue(varying)])


def is_of_numbers(m: Machine, value: Value, containers: Any) -> bool:
    if isinstance(value, TupleValue | ListValue):
        return isinstance(value, containers) and all(
            is_of_numbers(m, item, containers) for item in value.items_list(m) or ())
    if isinstance(value, DictValue):
        return isinstance(value, containers) and all(
            is_of_numbers(m, value.get(m, key), containers) for key in value.keys(m))
    return isinstance(value, Const) and value.pytype in (int, float, bool, str, NoneType)


@handles(polyfill.state_of_trace)
def state_of_trace(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const((len(m.effects), len(m.mutated), len(m.draws.calls)))


@handles(polyfill.only_numbers)
def only_numbers(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result, before, varying, function = args
    containers = TupleValue | ListValue | DictValue if is_installed(function.real.__code__.co_filename) else TupleValue
    if before.constant() == state_of_trace(m, [], {}).constant() and is_of_numbers(m, result, containers):
        return result
    raise RestartCapture("a cached function does more than to compute numbers", constant=frozenset(
        origin for number in varying.items_list(m) or () for origin in leaves(number.term)))    # type: ignore[attr-defined]


def first_result(m: Machine, reading: CachedResult, real: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a cached function whose cache does not have the result. Its body may do anything, so the trace must not
    have done anything before, except for changes of objects that the body cannot reach.
    """
    builder = m.builder
    if m.effects or m.draws.calls or m.modes or m.watch is not None or builder.region is not None or (
            builder.fake_mode.draws or has_changed(builder) or flagged_inputs(builder)) or may_reach(
            [real, *args, *kwargs.values()], changed_objects(m)):
        m.guard(IsGuard(reading, NOT_CACHED))
        raise Break(Reason.OPAQUE_CALL, f"{reading}, whose result is not cached yet,")
    try:
        return real(*args, **kwargs)
    except Exception as e:
        raise PyRaise(ExceptionValue(type(e), [wrap_new(m, a) for a in e.args])) from None


def changed_objects(m: Machine) -> Iterator[Any]:
    """The existing objects that the trace has changed; for the dict of an object, the object as well."""
    for value in m.mutated.values():
        yield value.real
        if isinstance(value, DictValue) and value.owner is not None:
            yield value.owner.real


def is_global(value: Value) -> bool:
    """Whether it is a constant, or an object that existed before and is not reached from an argument of the call."""
    if isinstance(value, Const):
        return True
    return value.origin is not None and value.real is not ABSENT and not isinstance(value, TensorValue) and (
        not per_call(value.origin))


def remembered(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The result of a cached function, called now. At the next call of the program it would be cached anyway."""
    for value in (*args, *kwargs.values()):
        if not isinstance(value, Const) and value.origin is not None:
            m.guard(IsGuard(value.origin, value.real))
    try:
        result = real(*(a.real for a in args), **{k: v.real for k, v in kwargs.items()})
    except Exception as e:
        raise PyRaise(ExceptionValue(type(e), [wrap_new(m, a) for a in e.args])) from None
    return wrap_known(m, result)


def dispatch(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The implementation of a ``functools.singledispatch`` function for a class. The real function is asked, under a
    guard.
    """
    cls, = args
    if function.real is ABSENT:
        return dispatch_made(m, function, cls)
    variables = dict(zip(function.code.co_freevars, function.real.__closure__, strict=True))
    if type(variables["dispatch_cache"].cell_contents) is not weakref.WeakKeyDictionary:
        # a subclass of the cache may show the lookup
        raise Break(Reason.UNSUPPORTED, "a singledispatch function with a cache of another kind")
    origin = function.origin or known(function.real, "dispatch")
    found = function.real(cls.constant())
    m.guard(ResultGuard(origin, cls.constant(), found))
    return wrap_known(m, found)


def dispatch_made(m: Machine, function: FunctionValue, cls: Value) -> Value:
    """The same for a function that the trace has made: ``functools`` is asked which class of the registry it is."""
    registry = function.closure[function.code.co_freevars.index("registry")].get(m)
    assert isinstance(registry, DictValue)
    kinds = {kind: kind for kind in registry.keys(m)}
    try:
        found: Any = functools._find_impl(cls.constant(), kinds)  # type: ignore[attr-defined]
    except RuntimeError as e:       # two fit equally well
        return m.throw(RuntimeError, *e.args)
    return registry.get(m, found)


def register(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if function.real is ABSENT:
        return m.enter(function, args, kwargs)
    # `dispatch` asks the real function
    raise Break(Reason.SIDE_EFFECT, "registering with a singledispatch function")


_generic = functools.singledispatch(len)
BY_CODE[_generic.dispatch.__code__] = dispatch
BY_CODE[_generic.register.__code__] = register


@handles(weakref.WeakKeyDictionary)
def weak_dict(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.frames[-1].native.co_filename == functools.__file__ and not args:      # a cache, see dispatch_made
        return EmptyWeakDict()
    return m.enter(type_call, [Const(weakref.WeakKeyDictionary), *args], kwargs)


@handles(polyfill.check_hash)
def check_hash(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key_of(m, args[0], role=None)
    return NONE


@handles(polyfill.nothing)
def nothing(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NONE


@handles(functools.get_cache_token)  # type: ignore[attr-defined]
def cache_token(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Python looks classes up again if the token of the cache is an old one."""
    if m.frames[-1].native.co_filename != functools.__file__:
        raise Break(Reason.OPAQUE_CALL, "get_cache_token()")
    return run_native(m, functools.get_cache_token)  # type: ignore[attr-defined]


@handles(functools.reduce)
def reduce(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, iterable, initial = take("reduce", args, kwargs, "function", "iterable", "initial", required=2)
    if initial is None:
        return m.enter(polyfill.reduce, [function, iterable])
    return m.enter(polyfill.reduce_from, [function, iterable, initial])


@handles(functools.cmp_to_key)
def cmp_to_key(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return KeyValue(take("cmp_to_key", args, kwargs, "mycmp", required=1)[0])


# ---- operator ---------------------------------------------------------------------------------------------------
def _getter(cls: type) -> Any:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = hosts(m, [*args, *kwargs.values()])
        if found is None:
            raise Break(Reason.UNSUPPORTED, f"{cls.__name__} of values that are not constants")
        count = len(args)
        return Const(cls(*found[:count], **dict(zip(kwargs, found[count:], strict=True))))
    return handler


for _cls in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
    HANDLERS[_cls] = _getter(_cls)


def reduced(m: Machine, getter: Value) -> Any:
    """What an itemgetter, attrgetter or methodcaller would be pickled as, which shows its arguments."""
    if getter.real is ABSENT:
        raise Break(Reason.OPAQUE_VALUE, str(getter))
    if getter.origin is not None and not isinstance(getter, Const):
        m.guard(IsGuard(getter.origin, getter.real))
    return getter.real.__reduce__()


@handles(operator.itemgetter.__call__)
def call_itemgetter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    getter, obj = take("itemgetter", args, kwargs, "self", "obj", required=2)
    keys = [wrap_new(m, k) for k in reduced(m, getter)[1]]
    if len(keys) == 1:
        return obj.getitem(m, keys[0])
    if isinstance(obj, (ListValue, TupleValue, TensorValue, Const)):
        return TupleValue([obj.getitem(m, k) for k in keys])
    return m.enter(polyfill.get_items, [obj, TupleValue(keys)])


@handles(operator.attrgetter.__call__)
def call_attrgetter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    getter, obj = take("attrgetter", args, kwargs, "self", "obj", required=2)
    names = [Const(n) for n in reduced(m, getter)[1]]
    if len(names) == 1 and "." not in names[0].real:
        return obj.load_attr(m, names[0].real)
    return m.enter(polyfill.get_attributes, [obj, TupleValue(list(names))])


@handles(operator.methodcaller.__call__)
def call_methodcaller(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    getter, obj = take("methodcaller", args, kwargs, "self", "obj", required=2)
    maker, given = reduced(m, getter)
    named: dict[str, Any] = {}
    if maker is not operator.methodcaller:      # with keywords: a partial of it
        given, named = [*maker.args, *given], maker.keywords
    name, *rest = given
    keywords = DictValue(dict)
    keywords.overlay.update({k: wrap_new(m, v) for k, v in named.items()})
    return m.enter(polyfill.call_method, [obj, Const(name), TupleValue([wrap_new(m, v) for v in rest]), keywords])


@handles(operator.length_hint)
def length_hint(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, default = take("length_hint", args, kwargs, "obj", "default", required=1)
    if isinstance(value, (SequenceIterator, ReversedIterator, RangeIterator, DictIterator)):
        return Const(left_of(m, value))
    if isinstance(value, (IteratorValue, GeneratorValue)) and not hasattr(value.pytype, "__length_hint__"):
        return default or Const(0)
    if isinstance(value, (IteratorValue, GeneratorValue)) or is_native(slot(m, value, "__length_hint__")):
        raise Break(Reason.UNSUPPORTED, f"operator.length_hint of {value}")
    has = [boolean(slot(m, value, name) is not None) for name in ("__len__", "__length_hint__")]
    return m.enter(polyfill.length_hint, [value, default or Const(0), *has])


def left_of(m: Machine, iterator: IteratorValue) -> int:
    """How many elements an iterator has left: a copy of its position is stepped to the end."""
    undo, count = iterator.snapshot(), 0
    while iterator.step(m) is not ABSENT:
        count += 1
    undo()
    return count
