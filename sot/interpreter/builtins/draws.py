"""Random numbers of Python's and NumPy's generators: drawn before the graph, which takes them as inputs that vary.

The graph breaks at a draw if a branch or an index depends on the number, or if a backend compiles the graph and
the call draws an array.
The numbers of a generator that the program makes with a constant seed are constants.
"""
from __future__ import annotations

import _random
import functools
import random
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from sot.guards.draws import AllDrawn, Drawn
from sot.guards.origin import ById, Origin, known
from sot.interpreter.numpy_ops import numpy_arrays
from sot.interpreter.numpy_ops.memory import Memory
from sot.interpreter.torch_ops import deferred_scalars
from sot.polyfills import functional as polyfills
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.arrays import ArrayRef, ArrayValue, Layout, may_call_numpy
from sot.values.base import NONE, Const, NotConstant, Value
from sot.values.objects.seeded import SeededGenerator
from sot.values.wrapping import wrap_known, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

OF_PYTHON = ("random", "uniform", "randint", "randrange", "getrandbits", "triangular", "gauss", "normalvariate",
             "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "betavariate", "paretovariate",
             "weibullvariate", "binomialvariate", "seed")
OF_NUMPY = ("rand", "random", "random_sample", "uniform", "randint", "randn", "standard_normal", "normal",
            "exponential", "beta", "gamma", "poisson", "binomial", "integers", "seed", "permutation", "choice",
            "laplace", "lognormal", "gumbel", "standard_exponential", "triangular", "chisquare")
CLASSES = ((_random.Random, OF_PYTHON), (random.Random, OF_PYTHON), (np.random.RandomState, OF_NUMPY),
           (np.random.Generator, OF_NUMPY))
EXACT = (random.Random, np.random.RandomState, np.random.Generator)
INT_LIMIT = 1 << 62


def draw(m: Machine, method: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The number that a method of a generator gives, or None of ``seed``."""
    refused = Break(Reason.RANDOM, f"{method.__name__}()")
    generator, point = args[0], deferred_scalars.here(m)
    if isinstance(generator, SeededGenerator):
        return known_draw(m, generator, method, args[1:], kwargs)
    if generator.pytype not in EXACT or generator.origin is None or not deferred_scalars.can_read(m, point):
        raise refused
    try:
        given, named = tuple(v.host(m) for v in args[1:]), {k: v.host(m) for k, v in kwargs.items()}
    except NotConstant:
        raise refused from None
    if not all(map(is_plain, (*given, *named.values()))):
        raise refused
    call = functools.partial(method, **named) if named else method
    try:
        example = call(deepcopy(generator.real), *given)
    except Exception:  # noqa: BLE001 - Python will raise it
        raise refused from None
    layout = Layout.of(example)
    if example is not None and layout is None and not (
            type(example) is float or type(example) is int and abs(example) < INT_LIMIT):
        raise refused
    if layout is not None and not may_call_numpy(m):
        raise refused
    place = note(m, generator, call, given)
    if example is None:
        return NONE
    made = Drawn(AllDrawn(ById(m.draws)), place, point, example)
    if made in m.varies.specialized:
        raise refused
    return m.varying_number(example, made) if layout is None else array_input(m, example, layout, made)


def is_plain(value: Any) -> bool:
    """Whether a method of a generator takes it without running code of the program, and without changing it."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return value is None or type(value) in (int, float) and abs(value) < INT_LIMIT or type(value) in (bool, str) or (
        isinstance(value, type | np.dtype))


def array_input(m: Machine, real: Any, layout: Layout, origin: Origin) -> ArrayValue:
    """An array or a number of NumPy that is made for the call: nothing else has its memory, and it needs no guard."""
    ref = ArrayRef(layout, Memory() if layout.is_array else None, None, real, str(origin))
    m.input_origins[id(ref)] = origin
    made = ArrayValue(layout.kind, ref)
    made.origin = origin        # where there is no graph, a break reads it there
    return made


def note(m: Machine, generator: Value, method: Any, args: tuple) -> int:
    """Add a call to the draws of the trace. Returns its index."""
    log, origin = m.draws, generator.origin
    assert origin is not None
    if origin not in log.generators:
        log.generators.append(origin)
        m.undoable(log.generators.pop)
    m.undoable(lambda: setattr(m.builder, "drawn", len(log.calls)))
    log.calls.append((log.generators.index(origin), method, args))
    m.undoable(log.calls.pop)
    m.builder.drawn = len(log.calls)
    return len(log.calls) - 1


# ---- generators that the program makes ------------------------------------------------------------------------
def known_draw(m: Machine, generator: SeededGenerator, method: Any, args: list[Value],
               kwargs: dict[str, Value]) -> Value:
    """The number that the generator gives at this point of the program."""
    try:
        given, named = [v.host(m) for v in args], {k: v.host(m) for k, v in kwargs.items()}
    except NotConstant:
        raise Break(Reason.RANDOM, f"{method.__name__}()") from None
    m.touch(generator)
    try:
        found = method(generator.host_generator, *given, **named)
    except Exception:  # noqa: BLE001 - Python will raise it
        raise Break(Reason.RANDOM, f"{method.__name__}()") from None
    if not isinstance(found, np.ndarray):
        return wrap_new(m, found)
    layout = Layout.of(found)
    if layout is None:
        raise Break(Reason.RANDOM, f"{method.__name__}() of an array")
    held = array_input(m, found, layout, known(found, "random numbers"))
    return numpy_arrays.array_call(m, "call_function", np.copy, [held], {})


def _made_by(make: Any, kind: type) -> None:
    @handles(make)
    def seeded(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        seed = args[0] if len(args) == 1 and not kwargs else None
        if not isinstance(seed, Const) or type(seed.unguarded) is not int:
            raise Break(Reason.RANDOM, f"{kind.__name__}() without a known seed")
        return SeededGenerator(make(seed.real))


for _make, _kind in ((random.Random, random.Random), (np.random.RandomState, np.random.RandomState),
                     (np.random.default_rng, np.random.Generator)):
    _made_by(_make, _kind)


def _followed(method: Any, polyfill: Any) -> None:
    """A method that only indexes with draws."""
    @handles(method)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not isinstance(args[0], SeededGenerator):
            raise Break(Reason.RANDOM, f"{method.__qualname__}()")
        return m.enter(polyfill, args, kwargs)


_followed(random.Random.choice, polyfills.choice)
_followed(random.Random.shuffle, polyfills.shuffle)


def _handler(method: Any) -> None:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return draw(m, method, args, kwargs)
    HANDLERS[method] = handler


for _class, _names in CLASSES:
    for _name in _names:
        if _name in vars(_class):
            _handler(vars(_class)[_name])


@handles(np.random.seed)
def seed_numpy(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function beside the generator, whose other methods are functions of the module."""
    generator: Any = np.random.rand
    return draw(m, np.random.RandomState.seed, [wrap_known(m, generator.__self__), *args], kwargs)
