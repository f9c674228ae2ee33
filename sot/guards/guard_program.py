"""From guards and origins to the guard program that C runs; see sot/csrc/guards/guards.c.

``GuardProgram`` takes guards and origins and reports for each whether C can handle it. The others stay Python code in
the entry, so a new origin or guard needs no change here. A step is made only where it is equivalent to the origin's
own expression. The values of the captured call decide that. If it might change (a class may get a property with the
name of an attribute), the program gets a check for it.
"""
from __future__ import annotations

import functools
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

from sot import _hook
from sot.guards.containers import stored_item
from sot.guards.guards import (
    NO_HOOK_DICTS,
    CodeGuard,
    DistinctGuard,
    EqualsGuard,
    Guard,
    HasKeyGuard,
    IsGuard,
    KeysGuard,
    LengthGuard,
    NoHooksGuard,
    SameGuard,
    TypeGuard,
    is_constant,
    short,
)
from sot.guards.origin import (
    Arg,
    Attr,
    CellContents,
    ClassAttr,
    Global,
    Inputs,
    Item,
    KeyAt,
    Known,
    Origin,
    RawAttr,
    RawItem,
)
from sot.guards.tensor_guards import AnyTensorGuard, TensorGuard
from sot.support.lookups import own_dict
from sot.torch_compat.hooks import GLOBAL_HOOKS

ABSENT = object()
SIZED = (list, tuple, dict, set, frozenset, OrderedDict, defaultdict)
OF_METHODS = ("__func__", "__self__")
NO_EXAMPLES: Mapping[Guard, torch.Tensor] = {}


class NotInC(Exception):
    """C does not support this origin or guard."""


class Node:
    """A place of the program while it is built, with its current value."""

    __slots__ = ("step", "operand", "number", "checks", "children", "value", "index")

    def __init__(self, step: str, operand: Any, number: int, value: Any) -> None:
        self.step, self.operand, self.number, self.value = step, operand, number, value
        self.checks: dict[Any, tuple] = {}
        self.children: dict[Any, Node] = {}
        self.index = -1

    def __str__(self) -> str:
        if self.step in ("arg", "index", "key", "field"):
            return f"{self.step} {self.number}"
        if self.step == "held" and type(self.operand) is dict and "__name__" in self.operand:
            return f"held {self.operand['__name__']} globals"
        return self.step if self.operand is None else f"{self.step} {short(self.operand)}"


class GuardProgram:
    """The guard program of one entry.

    Arguments:
        inputs: the inputs of the captured call.
        guards: the guards. ``left`` are those that C cannot check. Tensor guards also compare the dispatch keys that a
            thread adds.
        examples: the tensors that guards were made from.
    """

    def __init__(self, inputs: Inputs, guards: Iterable[Guard] = (),
                 examples: Mapping[Guard, torch.Tensor] = NO_EXAMPLES) -> None:
        self.inputs, self.examples = inputs, examples
        self.roots: dict[Any, Node] = {}
        self.nodes: dict[Origin, Node | None] = {}
        self.pairs: list[tuple[Node, Node, bool]] = []
        self.groups: list[tuple[Node, ...]] = []
        guards = [*guards]
        tensors = [g for g in guards if isinstance(g, TensorGuard)]
        self.compares_threads = any(isinstance(g, TensorGuard | AnyTensorGuard) for g in guards)
        self.left: list[Guard] = [g for g in guards if not isinstance(g, TensorGuard) and not self.add(g)]
        if not self.add_tensors(tensors):
            self.left += tensors

    # ---- origins
    def node(self, origin: Origin) -> Node:
        """The place of an origin. Raises NotInC."""
        found = self.nodes.get(origin, ABSENT)
        if found is ABSENT:
            try:
                found = STEPS[type(origin)](self, origin)
            except (KeyError, NotInC):
                found = None
            self.nodes[origin] = found
        if found is None:
            raise NotInC
        return found    # type: ignore[return-value]

    def has(self, origin: Origin) -> bool:
        """Whether the program can load it and pass it to Python."""
        try:
            return self.node(origin).step != "type_dict"
        except NotInC:
            return False

    def child(self, parent: Node | None, step: str, operand: Any, number: int, value: Any) -> Node:
        """A place below another one, or a root."""
        places = self.roots if parent is None else parent.children
        by_identity = step == "held"
        key = (step, number, id(operand) if by_identity else operand, None if by_identity else type(operand))
        if key not in places:
            places[key] = Node(step, operand, number, value)
        return places[key]

    def held(self, value: object) -> Node:
        return self.child(None, "held", value, 0, value)

    def check(self, node: Node, kind: str, operand: Any = None, second: Any = None, key: Any = None) -> None:
        node.checks.setdefault((kind, key), (kind, operand, second))

    def has_type(self, node: Node) -> type:
        kind = type(node.value)
        self.check(node, "type", kind)
        return kind

    def finds(self, cls: type, name: str) -> Any:
        """The attribute of a class or its bases, ABSENT if there is none. A check ensures that it stays so."""
        found = next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), ABSENT)
        self.check(self.held(cls), "lookup", name, None if found is ABSENT else (found,), key=name)
        return found

    def dict_of(self, base: Node) -> Node:
        """The ``__dict__`` of an instance."""
        kind = type(base.value)
        found = own_dict(base.value)
        if issubclass(kind, type) or type(found) is not dict:
            raise NotInC
        self.has_type(base)
        return self.child(base, "dict", None, 0, found)

    def item(self, base: Node, key: Any) -> Node:
        """An item of a dict. An override in a subclass is ignored."""
        get = base.value.__getitem__ if base.step == "type_dict" else functools.partial(stored_item, base.value)
        if not is_constant(key):
            raise NotInC
        try:
            return self.child(base, "item", key, 0, get(key))
        except KeyError:
            raise NotInC from None

    def attribute(self, base: Node, name: str) -> Node:
        """``base.name`` as ``object.__getattribute__`` finds it, if that runs no code."""
        kind = type(base.value)
        if issubclass(kind, type):
            raise NotInC
        found = self.finds(kind, name)
        if name == "__dict__":
            return self.dict_of(base)
        if type(found) in (MemberDescriptorType, GetSetDescriptorType):
            return self.field(base, found)
        if found is not ABSENT and hasattr(type(found), "__set__"):
            raise NotInC
        return self.item(self.dict_of(base), name)

    def field(self, base: Node, descriptor: MemberDescriptorType | GetSetDescriptorType) -> Node:
        place = _hook.member_offset(descriptor)
        if place is None:
            raise NotInC
        offset, missing_is_none = place
        self.has_type(base)
        value = descriptor.__get__(base.value, type(base.value))
        return self.child(base, "field", (None,) if missing_is_none else None, offset, value)

    # ---- guards
    def add(self, guard: Guard) -> bool:
        """Add a guard to the program, if C can check it."""
        try:
            CHECKS[type(guard)](self, guard)
        except (KeyError, NotInC):
            return False
        return True

    def add_tensors(self, guards: list[TensorGuard]) -> bool:
        """Add all guards or none, because the tensors must also be different objects."""
        try:
            found = [(self.node(guard.origin), guard.spec(self.examples[guard])) for guard in guards]
        except NotInC:
            return False
        if any(spec is None for _, spec in found):
            return False
        for node, spec in found:
            self.check(node, "tensor", spec)
        return True

    # ---- the result
    def in_order(self) -> Iterator[tuple[Node, Node | None, int]]:
        """The places in the order in which C visits them, each with its parent and depth."""
        stack: list[tuple[Node, Node | None, int]] = [(node, None, 0) for node in reversed(self.roots.values())]
        while stack:
            node, parent, depth = stack.pop()
            yield node, parent, depth
            stack.extend((child, node, depth + 1) for child in reversed(node.children.values()))

    def finish(self) -> tuple[list[tuple], list[tuple], list[tuple]]:
        """Nodes, pairs and groups in the form that ``Entry`` takes."""
        nodes: list[tuple] = []
        for node, parent, _ in self.in_order():
            node.index = len(nodes)
            nodes.append((node.step, -1 if parent is None else parent.index, node.operand, node.number,
                          (*node.checks.values(),)))
        pairs = [(a.index, b.index, same) for a, b, same in self.pairs]
        return nodes, pairs, [tuple(n.index for n in group) for group in self.groups]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        """Each place below its parent, with its checks; then the guards that are left to Python."""
        for i, (node, _, depth) in enumerate(self.in_order()):
            node.index = i
            checks = ", ".join(check_text(kind, operand) for kind, operand, _ in node.checks.values())
            yield f"{i:3} {'  ' * depth}{node}{f': {checks}' if checks else ''}"
        yield from (f"    {a.index} {'is' if same else 'is not'} {b.index}" for a, b, same in self.pairs)
        yield from (f"    all different: {', '.join(str(n.index) for n in group)}" for group in self.groups)
        yield from (f"    in Python: {guard}" for guard in self.left)


def check_text(kind: str, operand: Any) -> str:
    """A short description of a check."""
    if kind == "code":
        return f"code of {operand[0].co_qualname}"
    if kind == "type":
        return f"type {operand.__qualname__}"
    return kind if operand is None or kind == "tensor" else f"{kind} {short(operand)}"


# ---- steps ------------------------------------------------------------------------------------------------
def _arg(b: GuardProgram, origin: Arg) -> Node:
    return b.child(None, "arg", None, origin.index, b.inputs[origin.index])


def _known(b: GuardProgram, origin: Known) -> Node:
    return b.held(origin.held.value)


def _attr(b: GuardProgram, origin: Attr) -> Node:
    base = b.node(origin.base)
    kind = type(base.value)
    if issubclass(kind, type):
        if origin.name != "__dict__" or type(origin) is RawAttr:
            raise NotInC
        return type_dict(b, base)
    if type(origin) is Attr and not looks_up_plainly(b, kind, origin.name):
        raise NotInC
    return b.attribute(base, origin.name)


def looks_up_plainly(b: GuardProgram, kind: type, name: str) -> bool:
    """Whether ``object.__getattribute__`` finds the attribute. Modules and methods look it up in the same way."""
    found = b.finds(kind, "__getattribute__")
    return found is ModuleType.__getattribute__ or _hook.is_generic_lookup(found) or (
        kind is MethodType and name in OF_METHODS)


def type_dict(b: GuardProgram, base: Node) -> Node:
    """The ``__dict__`` of a class, of which Python shows a proxy."""
    return b.child(base, "type_dict", None, 0, base.value.__dict__)


def _class_attr(b: GuardProgram, origin: ClassAttr) -> Node:
    return b.item(type_dict(b, b.node(origin.base)), origin.name)


def _item(b: GuardProgram, origin: Item) -> Node:
    base = b.node(origin.base)
    raw = isinstance(origin, RawItem)
    kind = origin.kind if raw else type(base.value)     # type: ignore[attr-defined]
    if not raw:
        b.has_type(base)
    if kind is dict:
        return b.item(base, origin.key)
    if kind in (list, tuple) and type(origin.key) is int and origin.key >= 0:
        return b.child(base, "index", None, origin.key, kind.__getitem__(base.value, origin.key))
    raise NotInC


def _global(b: GuardProgram, origin: Global) -> Node:
    return b.item(b.node(origin.namespace), origin.name)


def _cell(b: GuardProgram, origin: CellContents) -> Node:
    base = b.node(origin.base)
    if type(base.value) is not CellType:
        raise NotInC
    b.has_type(base)
    return b.child(base, "cell", None, 0, base.value.cell_contents)


def _key(b: GuardProgram, origin: KeyAt) -> Node:
    base = b.node(origin.base)
    if type(base.value) is not dict:
        raise NotInC
    b.has_type(base)
    return b.child(base, "key", None, origin.index, [*base.value][origin.index])


STEPS: dict[type, Callable[[GuardProgram, Any], Node]] = {
    Arg: _arg, Known: _known, Attr: _attr, RawAttr: _attr, ClassAttr: _class_attr, Item: _item, RawItem: _item,
    Global: _global, CellContents: _cell, KeyAt: _key}


# ---- checks -----------------------------------------------------------------------------------------------
def _is(b: GuardProgram, guard: IsGuard) -> None:
    b.check(b.node(guard.origin), "is", guard.value)


def _equals(b: GuardProgram, guard: EqualsGuard) -> None:
    if not is_constant(guard.value):
        raise NotInC
    b.check(b.node(guard.origin), "equals", guard.value)


def _type(b: GuardProgram, guard: TypeGuard) -> None:
    node = b.node(guard.origin)
    if node.step == "type_dict":
        raise NotInC
    b.check(node, "type", guard.cls)


def _any_tensor(b: GuardProgram, guard: AnyTensorGuard) -> None:
    b.check(b.node(guard.origin), "any_tensor", guard.cls)


def _length(b: GuardProgram, guard: LengthGuard) -> None:
    node = b.node(guard.origin)
    if type(node.value) not in SIZED:
        raise NotInC
    b.has_type(node)
    b.check(node, "length", guard.length)


def _keys(b: GuardProgram, guard: KeysGuard) -> None:
    node = b.node(guard.origin)
    if not guard.keys and type(node.value) in (dict, OrderedDict):
        b.check(node, "empty")
        return
    if type(node.value) is not dict or not all(map(is_constant, guard.keys)):
        raise NotInC
    b.check(node, "keys", guard.keys)


def _has_key(b: GuardProgram, guard: HasKeyGuard) -> None:
    node = b.node(guard.origin)
    if not (type(node.value) is dict or node.step == "type_dict") or not is_constant(guard.key):
        raise NotInC
    if node.step != "type_dict":
        b.has_type(node)
    b.check(node, "has" if guard.present else "lacks", guard.key, key=(type(guard.key), guard.key))


def _code(b: GuardProgram, guard: CodeGuard) -> None:
    b.check(b.node(guard.origin), "code", guard.parts)


def _no_hooks(b: GuardProgram, guard: NoHooksGuard) -> None:
    base = b.node(guard.origin)
    dicts = [b.attribute(base, name) for name in NO_HOOK_DICTS]
    if not all(type(d.value) in (dict, OrderedDict) for d in dicts):
        raise NotInC
    for node in dicts:
        b.has_type(node)
        b.check(node, "empty")


def _same(b: GuardProgram, guard: SameGuard) -> None:
    b.pairs.append((b.node(guard.origin), b.node(guard.other), guard.same))


def _distinct(b: GuardProgram, guard: DistinctGuard) -> None:
    b.groups.append(tuple(b.node(origin) for origin in (guard.origin, *guard.others)))


CHECKS: dict[type, Callable[[GuardProgram, Any], None]] = {
    IsGuard: _is, EqualsGuard: _equals, TypeGuard: _type, AnyTensorGuard: _any_tensor, LengthGuard: _length,
    KeysGuard: _keys, HasKeyGuard: _has_key, CodeGuard: _code, NoHooksGuard: _no_hooks, SameGuard: _same,
    DistinctGuard: _distinct}


# ---- calls of modules -------------------------------------------------------------------------------------
def module_forward(module: torch.nn.Module) -> tuple[FunctionType | None, Any, _hook.Entry | None]:
    """For ``Direct``: the function that a call of the module runs, a reference to the module, and the guards for that.
    The module must have no hooks, and ``forward`` and the methods that call it must be the class's own.
    """
    owner = weakref.ref(module)
    forward = getattr(type(module), "forward", None)
    builder = GuardProgram((module,))
    try:
        node = builder.node(Arg(0, "self"))
        _no_hooks(builder, NoHooksGuard(Arg(0, "self")))
        for name in ("forward", "_call_impl"):
            builder.check(builder.dict_of(node), "lacks", name, key=name)
            found = builder.finds(type(module), name)
        same = found is torch.nn.Module._call_impl and builder.finds(type(module), "forward") is forward
        for name in GLOBAL_HOOKS:
            builder.check(builder.item(builder.held(vars(torch.nn.modules.module)), name), "empty")
    except NotInC:
        same = False
    if not same or type(forward) is not FunctionType:
        return None, owner, None
    prelude = _hook.Entry(*builder.finish(), (), None, None, (), None, (), None, 0, -1, _hook.PLAIN,
                          forward.__code__, False)
    return forward, owner, prelude
