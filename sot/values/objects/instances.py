"""Objects with attributes, and dicts. An instance's ``__dict__`` is a dict of the program."""
from __future__ import annotations

from collections import OrderedDict
from types import FunctionType
from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.guards.containers import has_key, keys_of
from sot.guards.guards import HasKeyGuard, IsGuard, KeysGuard
from sot.guards.origin import Item, KeyAt, Length, Origin, RawItem, attribute, index_of
from sot.support.errors import Break, Reason
from sot.support.lookups import own_dict
from sot.torch_compat.functions import DISABLED
from sot.values.base import ABSENT, Const, NotConstant, Value
from sot.values.constants import compares_by_python, is_constant, is_one_object
from sot.values.objects.identities import IdentityKey, refuse_among_others
from sot.values.objects.keys import PythonKey, finish
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine

DELETED: Any = object()
HOST_DICTS = (dict, OrderedDict)


def empty_slot(obj: object, name: str) -> None:
    """Empty a slot again, because the program's value was never written there."""
    try:
        object.__delattr__(obj, name)
    except AttributeError:
        pass


EMPTY_SLOT = _hook.plain(empty_slot)


class Duck:
    """Stands among an operation's arguments for an object that is not a tensor and whose class has
    ``__torch_function__``.
    """

    def __init__(self, value: ObjectValue) -> None:
        self.value = value


def has_override(kind: type) -> bool:
    return getattr(kind, "__torch_function__", DISABLED) is not DISABLED


class ObjectValue(Value):
    """An instance of any class. ``attrs`` is its ``__dict__``; ``slots`` are the values of its member descriptors."""

    def __init__(self, pytype: type, real: Any = ABSENT, origin: Origin | None = None) -> None:
        self.pytype, self.real, self.origin = pytype, real, origin
        self._attrs: DictValue | None = None
        self.slots: dict[str, Value] = {}           # written
        self.slots_read: dict[str, Value] = {}
        self.new_args: list[Value] = []     # the arguments of ``__new__`` that make the object again

    @property
    def attrs(self) -> DictValue:
        if self._attrs is None:
            if self.real is ABSENT:
                self._attrs = DictValue(dict)
            else:
                real = own_dict(self.real)
                if real is None:
                    self._attrs = DictValue(dict)
                else:
                    assert self.origin is not None
                    self._attrs = DictValue(dict, real, attribute(self.origin, "__dict__", self.found_as))
            self._attrs.owner = self
        return self._attrs

    @property
    def is_duck(self) -> bool:
        """Whether it is not a tensor, but its class has ``__torch_function__``."""
        return has_override(self.pytype)

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.is_duck:
            found[id(self)] = self
            return Duck(self)
        return self.graph_contents(m, found, as_number)

    def graph_contents(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        """A container as an argument of a tensor operation."""
        return super().graph_argument(m, found)

    @property
    def has_attrs(self) -> bool:
        return self._attrs is not None and bool(self._attrs.overlay)

    def snapshot(self) -> Callable[[], None]:
        slots, kind = dict(self.slots), self.pytype

        def undo() -> None:
            self.slots, self.pytype = slots, kind
        return undo

    @property
    def found_as(self) -> type:
        """Its class before the call."""
        return self.pytype if self.real is ABSENT else type(self.real)

    def truth(self, m: Machine) -> bool | None:
        kind = self.pytype
        return None if hasattr(kind, "__bool__") or hasattr(kind, "__len__") else True

    def rebuild(self, e: Emitter) -> str:
        return e.new_object(self)

    def fill(self, e: Emitter, name: str) -> None:
        """Emit what a new object needs besides its attributes."""

    def replay(self, e: Emitter) -> None:
        """Emit the writes to an existing object (attributes are replayed by ``attrs``)."""
        if self.pytype is not self.found_as:
            e.line(f"{e.value(self)}.__class__ = {e.const(self.pytype)}")
        for slot, value in self.slots.items():
            e.line(f"{e.const(EMPTY_SLOT)}({e.value(self)}, {slot!r})" if value is DELETED else
                   f"object.__setattr__({e.value(self)}, {slot!r}, {e.value(value)})")

    def __str__(self) -> str:
        return str(self.origin) if self.origin else f"an object of class {self.pytype.__qualname__}"


def guard_key(m: Machine, key: Any) -> None:
    """Guard a key that is looked up in an existing container: an object, also inside a tuple, must be the same
    again.
    """
    if type(key) is tuple:
        for part in key:
            guard_key(m, part)
    elif type(key) is not str:
        found = m.by_id.get(id(key))
        if found is not None and found[1].origin is not None:
            m.guard(IsGuard(found[1].origin, key))


def dict_of(name: str, kind: type) -> str:
    """The source of an object's ``__dict__``. A class may answer with something else."""
    is_own = isinstance(kind.__getattribute__, FunctionType)
    return f"object.__getattribute__({name}, '__dict__')" if is_own else f"{name}.__dict__"


class DictValue(ObjectValue):
    """A dict or an instance of a subclass.

    ``base`` is the existing dict, which is read lazily and guarded key by key. ``overlay`` holds what was written (or
    DELETED). ``moved`` are the keys of ``base`` that were deleted and written again, which moves them to the end. For
    a dict made during capture, ``base`` is empty and ``overlay`` has all items.
    """

    def __init__(self, pytype: type = dict, real: Any = ABSENT, origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.base: dict = {} if real is ABSENT else real
        self.loaded: dict[Any, Value] = {}
        self.overlay: dict[Any, Any] = {}
        self.key_values: dict[Any, Value] = {}
        self.moved: set = set()
        self.guarded_absent: set = set()
        self.deletions = 0          # the number so far, for iterators
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
        if self.origin is None or isinstance(key, Value):     # an object that capture has made is in no existing dict
            return ABSENT
        if not self.plain_keys and not self.namespace:
            self.refuse_python_keys(m)
        refuse_among_others(key)
        if isinstance(key, PythonKey):
            raise Break(Reason.UNSUPPORTED, f"looking for {key.value} in a dict that existed before")
        guard_key(m, key)
        if not has_key(self.base, key):
            if key not in self.guarded_absent:
                m.guard(HasKeyGuard(self.origin, key, False))
                self.guarded_absent.add(key)
            return ABSENT
        value = wrap(m, dict.__getitem__(self.base, key), self.item_origin(key))
        self.loaded[key] = value
        return value

    def refuse_python_keys(self, m: Machine) -> None:
        """Break if looking up a key may call user code."""
        if not self.plain_keys and any(type(k) is not str and compares_by_python(k) for k in keys_of(self.base)):
            raise Break(Reason.UNSUPPORTED, f"{self}, with keys that Python code compares,")
        self.plain_keys = True

    def item_origin(self, key: Any) -> Origin:
        assert self.origin is not None
        if self.owner is not None and self.owner.origin is not None and isinstance(key, str) and key.isidentifier():
            kind = self.owner.found_as if isinstance(self.owner, ObjectValue) else self.owner.pytype
            plain = not hasattr(kind, key) or not hasattr(getattr(kind, key), "__get__")
            return attribute(self.owner.origin, key, kind) if plain and not key.startswith("__") else Item(
                self.origin, key, f"{self.owner.origin}.{key}")
        return Item(self.origin, key) if self.pytype is dict else RawItem(self.origin, key, kind=dict)

    def keys(self, m: Machine | None) -> list[Any]:
        """All keys in order; guards the keys of an existing dict."""
        if m is not None and self.origin is not None and not self.keys_guarded:
            self.refuse_python_keys(m)
            m.guard(KeysGuard(self.origin, keys_of(self.base)))
            self.keys_guarded = True
        old = [k for k in keys_of(self.base) if self.overlay.get(k) is not DELETED and k not in self.moved]
        return old + [k for k, v in self.overlay.items()
                      if v is not DELETED and (not has_key(self.base, k) or k in self.moved)]

    def key_value(self, m: Machine, key: Any) -> Value:
        found = self.key_values.get(key)
        if found is None:
            if isinstance(key, Value):
                return key
            if isinstance(key, IdentityKey):
                return key.value
            old = self.origin is not None and has_key(self.base, key)
            origin = KeyAt(self.origin, index_of(key, keys_of(self.base))) if old else None  # type: ignore[arg-type]
            if origin is not None and not is_constant(key):
                found = wrap(m, key, origin)
            else:
                is_usual = is_one_object(key) or type(key) is str and key.isidentifier()    # interned
                found = Const(key, None if is_usual else origin)
            self.key_values[key] = found
        return found

    def values(self, m: Machine) -> list[Value]:
        return [self.get(m, k) for k in self.keys(m)]

    def host(self, m: Machine, depth: int = 0) -> Any:
        if self.pytype not in HOST_DICTS or self.owner is not None or self.namespace:
            raise NotConstant(self)
        depth = self.deeper(depth)
        return self.pytype((self.key_value(m, k).host(m, depth), self.get(m, k).host(m, depth)) for k in self.keys(m))

    def length(self, m: Machine) -> Value:
        """The length. Once a guard on the keys has failed, it is a varying number until the keys are read."""
        if self.pytype is dict and self.origin is not None and not (self.keys_guarded or self.overlay) and (
                self.owner is None and not self.namespace and m.varies.number(Length(self.origin))):
            return m.varying_number(len(self.base), Length(self.origin))
        return Const(len(self.keys(m)))

    def graph_contents(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.pytype is not dict:
            return super().graph_contents(m, found, as_number)
        return {k: self.get(m, k).graph_argument(m, found) for k in self.keys(m)}

    # ---- writing
    def snapshot(self) -> Callable[[], None]:
        overlay, moved, factory = dict(self.overlay), set(self.moved), self.default_factory
        deletions = self.deletions

        def undo() -> None:
            self.overlay, self.moved, self.default_factory = overlay, moved, factory
            self.deletions = deletions
        return undo

    def set(self, m: Machine, key: Any, value: Value, key_value: Value | None = None) -> None:
        if keys_of(self.base):
            refuse_among_others(key)
        before = self.overlay.get(key, ABSENT)
        if value is (self.loaded.get(key) if before is ABSENT else before):
            return      # ``self.seen += 1`` of a tensor changes the tensor, and no dict

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
        if has_key(self.base, key):
            self.overlay[key] = DELETED
            self.moved.discard(key)

    def truth(self, m: Machine) -> bool | None:
        if self.pytype is not dict and hasattr(self.pytype, "__bool__"):
            return None
        return self.length(m).truth(m)

    def items_list(self, m: Machine) -> list[Value] | None:
        return [self.key_value(m, k) for k in self.keys(m)]

    # ---- emission
    def _key_code(self, e: Emitter, key: Any) -> str:
        finish(e, key)
        found = key.value if isinstance(key, (PythonKey, IdentityKey)) else self.key_values.get(key)
        return e.value(found) if found is not None else e.key(key)

    def rebuild(self, e: Emitter) -> str:
        if self.owner is not None:
            return dict_of(e.value(self.owner), self.owner.pytype)
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
            of = self.owner if self.owner is not None and self.owner.pytype.__dictoffset__ != 0 else None
            if of is not None and isinstance(key, str) and not hasattr(getattr(of.pytype, key, None), "__set__"):
                e.line(f"object.__setattr__({e.value(of)}, {key!r}, {code})")
            elif self.pytype is dict:
                e.line(f"{name}[{self._key_code(e, key)}] = {code}")
            else:
                base = written_by(self.pytype, "__setitem__")
                e.line(f"{e.const(base)}.__setitem__({name}, {self._key_code(e, key)}, {code})")


def written_by(pytype: type, name: str) -> type:
    """The class whose C method changes instances of a dict subclass. An override in Python is ignored."""
    return next(c for c in pytype.__mro__ if name in vars(c) and not hasattr(vars(c)[name], "__code__"))
