"""Objects with attributes, and the containers, which may be instances of subclasses and carry attributes too.

An object exists before the frame runs (``real`` and ``origin``) or is made by it. What capture reads of an
existing object is guarded; what it writes goes into an overlay and is replayed by ``replay`` in emitted code.
``snapshot`` gives the undo of the next mutation; every mutator calls ``m.touch(self)`` first.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.guards.guards import HasKeyGuard, IsGuard, KeysGuard, OrderGuard
from sot.guards.origin import HandledOutside, Item, KeyAt, Origin, RawItem, attribute, index_of
from sot.support.errors import Break, NotRebuildable, Reason, article
from sot.support.tracebacks import Places, traceback_of
from sot.values import growing
from sot.values.base import ABSENT, Const, Lazy, NotConstant, Value, constants
from sot.values.keys import PythonKey, finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.emitter import Emitter
    from sot.values.machine import Machine

DELETED: Any = object()
KEEP_IN_INIT = (StopIteration, SystemExit, ImportError)     # besides ``args``, what C code makes of them


def empty_slot(obj: object, name: str) -> None:
    """Leave a slot empty, which it may be: what the program put there was never written."""
    try:
        object.__delattr__(obj, name)
    except AttributeError:
        pass


EMPTY_SLOT = _hook.plain(empty_slot)
MAKE_TRACEBACK = _hook.plain(traceback_of)


class ObjectValue(Value):
    """An instance of any class; ``attrs`` is its ``__dict__``, ``slots`` what its member descriptors hold."""

    def __init__(self, pytype: type, real: Any = ABSENT, origin: Origin | None = None) -> None:
        self.pytype, self.real, self.origin = pytype, real, origin
        self._attrs: DictValue | None = None
        self.slots: dict[str, Value] = {}           # written
        self.slots_read: dict[str, Value] = {}
        self.new_args: list[Value] = []     # what ``__new__`` needs to make the object again

    @property
    def attrs(self) -> DictValue:
        if self._attrs is None:
            if self.real is ABSENT:
                self._attrs = DictValue(dict)
            else:
                real = getattr(self.real, "__dict__", None)
                if real is None:
                    self._attrs = DictValue(dict)
                else:
                    assert self.origin is not None
                    self._attrs = DictValue(dict, real, attribute(self.origin, "__dict__", self.pytype))
            self._attrs.owner = self
        return self._attrs

    @property
    def has_attrs(self) -> bool:
        return self._attrs is not None and bool(self._attrs.overlay)

    def snapshot(self) -> Callable[[], None]:
        slots = dict(self.slots)

        def undo() -> None:
            self.slots = slots
        return undo

    def truth(self, m: Machine) -> bool | None:
        kind = self.pytype
        return None if hasattr(kind, "__bool__") or hasattr(kind, "__len__") else True

    def rebuild(self, e: Emitter) -> str:
        return e.new_object(self)

    def fill(self, e: Emitter, name: str) -> None:
        """Emit what a freshly made object needs beyond its attributes."""

    def replay(self, e: Emitter) -> None:
        """Emit the writes to an existing object (attributes are replayed by ``attrs``)."""
        for slot, value in self.slots.items():
            e.line(f"{e.const(EMPTY_SLOT)}({e.value(self)}, {slot!r})" if value is DELETED else
                   f"object.__setattr__({e.value(self)}, {slot!r}, {e.value(value)})")

    def __str__(self) -> str:
        return str(self.origin) if self.origin else f"an object of class {self.pytype.__qualname__}"


class ExceptionValue(ObjectValue):
    """An exception: made during capture, or an existing one, into whose arguments capture does not look."""

    def __init__(self, pytype: type, args: list[Value], real: Any = ABSENT, origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self._args = args
        self.new_args = args
        self.cause: Value | None = None
        self.context: Value | None = None
        self.suppress = False
        self.raised_unchained = False       # with nothing handled, unless it was outside of the captured function
        self.trace: Places = ()     # the frames it went through; CPython 3.11 relies on a traceback

    @property
    def args(self) -> list[Value]:
        if self.real is not ABSENT:
            raise Break(Reason.UNSUPPORTED, "reading an exception that Python raised")
        return self._args

    @args.setter
    def args(self, args: list[Value]) -> None:
        self._args = args

    def snapshot(self) -> Callable[[], None]:
        before = (self._args, self.cause, self.context, self.suppress, self.raised_unchained)

        def undo() -> None:
            self._args, self.cause, self.context, self.suppress, self.raised_unchained = before
        return undo

    def replay(self, e: Emitter) -> None:
        raise NotRebuildable("a changed exception that existed before")

    def fill(self, e: Emitter, name: str) -> None:
        if self.trace:
            e.line(f"{name}.__traceback__ = {e.const(MAKE_TRACEBACK)}({e.const(self.trace)})")
        if issubclass(self.pytype, KEEP_IN_INIT):
            base = next(c for c in KEEP_IN_INIT if issubclass(self.pytype, c))
            e.line(f"{e.const(base)}.__init__({name}{''.join(', ' + e.value(a) for a in self.args)})")
        elif self.args is not self.new_args:
            e.line(f"{name}.args = ({''.join(e.value(a) + ', ' for a in self.args)})")
        if self.cause is not None:
            e.line(f"{name}.__cause__ = {e.value(self.cause)}")
        if self.context is not None:
            e.line(f"{name}.__context__ = {e.value(self.context)}")
        elif self.raised_unchained:
            e.line(f"{name}.__context__ = {e.ref(HandledOutside())}")
        if self.suppress:
            e.line(f"{name}.__suppress_context__ = True")

    def describe(self) -> str:
        if self.real is not ABSENT:
            return self.pytype.__name__
        try:
            text = ", ".join(repr(a.unguarded if isinstance(a, Const) else a.constant()) for a in self.args)
        except NotConstant:
            text = "..."
        return f"{self.pytype.__name__}({text})"


class TupleValue(ObjectValue):
    """A tuple, torch.Size, named tuple or struct sequence. Immutable."""

    def __init__(self, items: list, pytype: type = tuple, real: Any = ABSENT, origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.items = items

    def constant(self) -> Any:
        if self.has_attrs:
            raise NotConstant(self)
        values = [v.real if isinstance(v, Lazy) else v.constant() for v in self.items]
        if any(isinstance(v, Lazy) for v in self.items):
            raise NotConstant(self)
        return make_tuple(self.pytype, values)

    def truth(self, m: Machine) -> bool | None:
        if self.pytype.__module__ in ("builtins", "torch") or not hasattr(self.pytype, "__bool__"):
            return bool(self.items)
        return None

    def items_list(self, m: Machine) -> list[Value] | None:
        return m.settle(self.items)

    def key(self) -> Any:
        return tuple(v.key() if isinstance(v, Value) else v.real for v in self.items)

    def rebuild(self, e: Emitter) -> str:
        parts = [e.value(v) for v in self.items]
        if self.pytype is tuple:
            return e.variable(self, e.tuple_display(parts))
        inner = "".join(f"{part}, " for part in parts)
        if takes_a_sequence(self.pytype):
            return e.variable(self, f"{e.const(self.pytype)}(({inner}))")
        made = e.variable(self, f"tuple.__new__({e.const(self.pytype)}, ({inner}))")
        if self.has_attrs:
            e.fill_attrs(made, self)
        return made

    def __str__(self) -> str:
        return str(self.origin) if self.origin else article(f"{self.pytype.__name__} of {len(self.items)}")


def takes_a_sequence(pytype: type) -> bool:
    """torch.Size and struct sequences such as ``torch.return_types.max``, which refuse ``tuple.__new__``."""
    return pytype.__module__.startswith("torch") and not hasattr(pytype, "_fields")


def make_tuple(pytype: type, values: list) -> Any:
    if pytype is tuple:
        return tuple(values)
    if takes_a_sequence(pytype):
        return pytype(values)
    return tuple.__new__(pytype, values)


class ListValue(ObjectValue):
    """A list, a deque, or an instance of a subclass of them."""

    def __init__(self, items: list, pytype: type = list, real: Any = ABSENT, origin: Origin | None = None,
                 load: Callable[[], list] | None = None) -> None:
        super().__init__(pytype, real, origin)
        self._items = items
        self._load = load           # of an existing list whose elements and length nobody has asked for
        self.maxlen: int | None = None      # of a deque
        self.changed = False

    @property
    def items(self) -> list:
        """The elements. Before they are asked for, an existing list can be appended to without a guard."""
        if self._load is not None:
            found = self._load()        # which may be refused
            self._load = None
            self._items[:0] = found
            self.drop_first()
        return self._items

    @items.setter
    def items(self, items: list) -> None:
        self._load = None
        self._items[:] = items

    @property
    def is_open(self) -> bool:
        """Is it an existing list that nobody has looked into?"""
        return self._load is not None

    @property
    def added(self) -> list:
        """What was appended to it before anybody has looked into it."""
        return self._items

    def drop_first(self) -> None:
        """Leave as many elements as a deque may have."""
        if self.maxlen is not None:
            del self._items[:max(0, len(self._items) - self.maxlen)]

    def extend(self, m: Machine, values: list[Value]) -> None:
        """Add elements at the end; undone without a copy of the rest, so that filling a list takes linear time."""
        if self.maxlen is not None:
            m.touch(self)
        else:
            changed, count = self.changed, len(values)

            def undo() -> None:
                self.changed = changed
                del self._items[len(self._items) - count:]
            m.touch(self, undo)
            self.changed = True
        self._items.extend(values)
        if self._load is None:
            self.drop_first()

    def set_item(self, m: Machine, index: int, value: Value) -> None:
        """Replace an element; undone without a copy of the rest."""
        changed, before = self.changed, self.items[index]

        def undo() -> None:
            self.changed, self._items[index] = changed, before
        m.touch(self, undo)
        self.changed, self.items[index] = True, value

    def snapshot(self) -> Callable[[], None]:
        changed, self.changed = self.changed, True
        load, items = self._load, list(self._items)

        def undo() -> None:
            self.changed, self._load = changed, load
            self._items[:] = items
        return undo

    def truth(self, m: Machine) -> bool | None:
        if hasattr(self.pytype, "__bool__"):
            return None
        length = growing.length(m, self)
        return bool(self.items) if length is None else length.truth(m)

    def items_list(self, m: Machine) -> list[Value] | None:
        return m.settle(self.items)

    def elements(self, e: Emitter) -> str:
        return ", ".join(e.value(v) for v in self.items)

    def rebuild(self, e: Emitter) -> str:
        if self.pytype is not list:
            return e.new_object(self)
        made = e.variable(self, "[]")
        if self.items:
            e.later(lambda: e.line(f"{made}.extend([{self.elements(e)}])"))
        return made

    def fill(self, e: Emitter, name: str) -> None:
        if not issubclass(self.pytype, list):
            e.line(f"deque.__init__({name}, [], {self.maxlen})")
            e.later(lambda: e.line(f"deque.extend({name}, [{self.elements(e)}])"))
        elif self.items:
            e.later(lambda: e.line(f"list.extend({name}, [{self.elements(e)}])"))

    def replay(self, e: Emitter) -> None:
        super().replay(e)
        if not self.changed:
            return
        target = e.value(self)
        if self._load is not None:
            kind = "list" if issubclass(self.pytype, list) else "deque"
            e.line(f"{kind}.extend({target}, [{', '.join(e.value(v) for v in self._items)}])")
            return
        elements = self.elements(e)
        if issubclass(self.pytype, list):
            e.line(f"list.__setitem__({target}, slice(None), [{elements}])")
        else:
            e.line(f"deque.clear({target}), deque.extend({target}, [{elements}])")


class SetValue(ObjectValue):
    """A set or frozenset; ``items`` maps member keys to Values."""

    def __init__(self, items: dict[Any, Value], pytype: type = set, real: Any = ABSENT,
                 origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.items = items
        self.changed = False

    def add(self, m: Machine, key: Any, value: Value) -> None:
        changed = self.changed

        def undo() -> None:
            self.changed = changed
            del self.items[key]
        m.touch(self, undo)
        self.changed = True
        self.items[key] = value

    def constant(self) -> Any:
        if self.pytype is not frozenset:
            raise NotConstant(self)
        return frozenset(constants(list(self.items.values())))

    def snapshot(self) -> Callable[[], None]:
        items, changed = dict(self.items), self.changed

        def undo() -> None:
            self.items, self.changed = items, changed
        self.changed = True
        return undo

    def truth(self, m: Machine) -> bool | None:
        return bool(self.items)

    def items_list(self, m: Machine) -> list[Value] | None:
        """The members in the order in which they are iterated."""
        if self.real is not ABSENT and not self.changed:
            if self.origin is not None and len(self.items) > 1:
                m.guard(OrderGuard(self.origin, tuple(self.real)))
            return [self.items[key] for key in self.real]
        try:
            return [self.items[k] for k in set(list(self.items))]    # noqa: C414 (a dict would size the set ahead)
        except (TypeError, KeyError):
            return list(self.items.values())

    def elements(self, e: Emitter) -> str:
        for key in self.items:
            finish(e, key)
        return ", ".join(e.value(v) for v in self.items.values())

    def rebuild(self, e: Emitter) -> str:
        inner = self.elements(e)
        return e.variable(self, f"{e.const(self.pytype)}([{inner}])")

    def replay(self, e: Emitter) -> None:
        super().replay(e)
        if self.changed:
            name = e.value(self)
            inner = self.elements(e)
            e.line(f"set.clear({name}), set.update({name}, [{inner}])")


def guard_key(m: Machine, key: Any) -> None:
    """What is looked for in a container that existed before: an object, or one in a tuple, must be the same again."""
    if type(key) is tuple:
        for part in key:
            guard_key(m, part)
    elif type(key) is not str:
        found = m.by_id.get(id(key))
        if found is not None and found[1].origin is not None:
            m.guard(IsGuard(found[1].origin, key))


class DictValue(ObjectValue):
    """A dict or an instance of a subclass.

    ``base`` is the existing dict, read lazily and guarded key by key; ``overlay`` holds what was written
    (or DELETED); ``moved`` the keys of ``base`` that were deleted and written again, which moves them to the end.
    Of a dict made during capture, ``base`` is empty and ``overlay`` is all there is.
    """

    def __init__(self, pytype: type = dict, real: Any = ABSENT, origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.base: dict = {} if real is ABSENT else real
        self.loaded: dict[Any, Value] = {}
        self.overlay: dict[Any, Any] = {}
        self.key_values: dict[Any, Value] = {}
        self.moved: set = set()
        self.deletions = 0          # so far, for iterators
        self.owner: Value | None = None       # the object whose __dict__ this is
        self.namespace = False                      # a module's globals
        self.default_factory: Value | None = None   # of a defaultdict
        self.keys_guarded = self.plain_keys = False

    # ---- reading
    def get(self, m: Machine, key: Any) -> Value | Any:
        """The value under a key, or ABSENT."""
        found = self.overlay.get(key, ABSENT)
        if found is not ABSENT:
            return ABSENT if found is DELETED else found
        found = self.loaded.get(key, ABSENT)
        if found is not ABSENT:
            return found
        if self.origin is None or isinstance(key, Value):     # what capture has made is in no dict that existed before
            return ABSENT
        if not self.plain_keys and not self.namespace:
            self.refuse_python_keys(m)
        if isinstance(key, PythonKey):
            raise Break(Reason.UNSUPPORTED, f"looking for {key.value} in a dict that existed before")
        guard_key(m, key)
        if self.pytype is dict or issubclass(self.pytype, dict):
            present = dict.__contains__(self.base, key)
        else:
            present = key in self.base
        if not present:
            m.guard(HasKeyGuard(self.origin, key, False))
            return ABSENT
        value = m.wrap(dict.__getitem__(self.base, key), self.item_origin(key))
        self.loaded[key] = value
        return value

    def refuse_python_keys(self, m: Machine) -> None:
        """A break if looking for a key may call user code."""
        if not self.plain_keys and any(type(k) is not str and m.compares_by_python(k) for k in self.base):
            raise Break(Reason.UNSUPPORTED, f"{self}, with keys that Python code compares,")
        self.plain_keys = True

    def item_origin(self, key: Any) -> Origin:
        assert self.origin is not None
        if self.owner is not None and self.owner.origin is not None and isinstance(key, str) and key.isidentifier():
            plain = not hasattr(self.owner.pytype, key) or not hasattr(getattr(self.owner.pytype, key), "__get__")
            return attribute(self.owner.origin, key, self.owner.pytype) if plain and not key.startswith("__") else Item(
                self.origin, key, f"{self.owner.origin}.{key}")
        return Item(self.origin, key) if self.pytype is dict else RawItem(self.origin, key, kind=dict)

    def keys(self, m: Machine | None) -> list[Any]:
        """All keys in order; guards the keys of an existing dict."""
        if m is not None and self.origin is not None and not self.keys_guarded:
            self.refuse_python_keys(m)
            m.guard(KeysGuard(self.origin, tuple(self.base)))
            self.keys_guarded = True
        old = [k for k in self.base if self.overlay.get(k) is not DELETED and k not in self.moved]
        return old + [k for k, v in self.overlay.items()
                      if v is not DELETED and (k not in self.base or k in self.moved)]

    def key_value(self, m: Machine, key: Any) -> Value:
        found = self.key_values.get(key)
        if found is None:
            if isinstance(key, Value):
                return key
            old = self.origin is not None and key in self.base
            origin = KeyAt(self.origin, index_of(key, self.base)) if old else None  # type: ignore[arg-type]
            found = Const(key) if origin is None or m.is_constant(key) else m.wrap(key, origin)
            self.key_values[key] = found
        return found

    def values(self, m: Machine) -> list[Value]:
        return [self.get(m, k) for k in self.keys(m)]

    # ---- writing
    def snapshot(self) -> Callable[[], None]:
        overlay, moved, factory = dict(self.overlay), set(self.moved), self.default_factory
        deletions = self.deletions

        def undo() -> None:
            self.overlay, self.moved, self.default_factory = overlay, moved, factory
            self.deletions = deletions
        return undo

    def set(self, m: Machine, key: Any, value: Value, key_value: Value | None = None) -> None:
        before = self.overlay.get(key, ABSENT)

        def undo() -> None:
            if before is ABSENT:
                del self.overlay[key]
            else:
                self.overlay[key] = before
        m.touch(self, None if before is DELETED else undo)
        if self.overlay.get(key) is DELETED:
            del self.overlay[key]
            self.moved.add(key)
        self.overlay[key] = value
        if key_value is not None:
            self.key_values.setdefault(key, key_value)

    def delete(self, m: Machine, key: Any) -> None:
        m.touch(self)
        self.deletions += 1
        self.overlay.pop(key, None)
        if key in self.base:
            self.overlay[key] = DELETED
            self.moved.discard(key)

    def truth(self, m: Machine) -> bool | None:
        if self.pytype is not dict and hasattr(self.pytype, "__bool__"):
            return None
        return bool(self.keys(m))

    def items_list(self, m: Machine) -> list[Value] | None:
        return [self.key_value(m, k) for k in self.keys(m)]

    # ---- emission
    def _key_code(self, e: Emitter, key: Any) -> str:
        finish(e, key)
        found = key.value if isinstance(key, PythonKey) else self.key_values.get(key)
        return e.value(found) if found is not None else e.key(key)

    def rebuild(self, e: Emitter) -> str:
        if self.owner is not None:
            return f"{e.value(self.owner)}.__dict__"
        if self.namespace:
            return e.const(self.base)
        if self.pytype is not dict:
            return e.new_object(self)
        made = e.variable(self, "{}")
        self.fill(e, made)
        return made

    def fill(self, e: Emitter, name: str) -> None:
        if self.default_factory is not None:
            e.line(f"{name}.default_factory = {e.value(self.default_factory)}")
        setter = written_by(self.pytype, "__setitem__")

        def items() -> None:
            for key in self.keys(None):
                key_code, value = self._key_code(e, key), e.value(self.overlay[key])
                e.line(f"{name}[{key_code}] = {value}" if self.pytype is dict else
                       f"{e.const(setter)}.__setitem__({name}, {key_code}, {value})")
        if self.overlay:
            e.later(items)

    def replay(self, e: Emitter) -> None:
        """Emit the writes to the existing dict: deletions first, then the rest in order."""
        if not self.overlay and not self.moved:
            return
        name = e.value(self)
        for key, value in self.overlay.items():
            if value is DELETED or key in self.moved:
                owner = e.const(written_by(self.pytype, "__delitem__"))
                e.line(f"{owner}.__delitem__({name}, {self._key_code(e, key)})"
                       if self.owner is None or self.owner.pytype.__dictoffset__ == 0
                       else f"del {name}[{self._key_code(e, key)}]")
        for key, value in self.overlay.items():
            if value is DELETED:
                continue
            code = e.value(value)
            if self.owner is not None and isinstance(key, str) and not hasattr(
                    getattr(self.owner.pytype, key, None), "__set__"):
                e.line(f"object.__setattr__({e.value(self.owner)}, {key!r}, {code})")
            elif self.pytype is dict:
                e.line(f"{name}[{self._key_code(e, key)}] = {code}")
            else:
                base = written_by(self.pytype, "__setitem__")
                e.line(f"{e.const(base)}.__setitem__({name}, {self._key_code(e, key)}, {code})")


def written_by(pytype: type, name: str) -> type:
    """The class whose C method changes instances of a dict subclass, past any override in Python."""
    return next(c for c in pytype.__mro__ if name in vars(c) and not hasattr(vars(c)[name], "__code__"))


class MappingProxy(Value):
    """Keys, values or items of a dict: a live view."""

    def __init__(self, kind: str, of: DictValue) -> None:
        self.kind, self.of = kind, of
        self.pytype = type(getattr({}, kind)())

    def items_list(self, m: Machine) -> list[Value] | None:
        if self.kind == "keys":
            return [self.of.key_value(m, k) for k in self.of.keys(m)]
        if self.kind == "values":
            return self.of.values(m)
        return [TupleValue([self.of.key_value(m, k), self.of.get(m, k)]) for k in self.of.keys(m)]

    def truth(self, m: Machine) -> bool | None:
        return bool(self.of.keys(m))

    def rebuild(self, e: Emitter) -> str:
        if self.of.pytype is dict:
            return e.variable(self, f"{e.value(self.of)}.{self.kind}()")
        base = e.const(written_by(self.of.pytype, self.kind))       # past an override, which may use this very view
        return e.variable(self, f"{base}.{self.kind}({e.value(self.of)})")


def unsupported(what: str) -> Break:
    return Break(Reason.UNSUPPORTED, what)


def not_rebuildable(what: str) -> NotRebuildable:
    return NotRebuildable(what)
