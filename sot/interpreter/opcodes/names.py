"""Names and storage: the stack, local variables, cells, globals, attributes, modules."""
from __future__ import annotations

import builtins
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from sot._hook import plain
from sot.bytecode import NULL_FIRST, Instr
from sot.guards.assumptions import RestartCapture
from sot.guards.guards import HasKeyGuard
from sot.guards.library_functions import ResultGuard
from sot.guards.origin import Attr, Global, Item, known
from sot.interpreter.builtins.common import take
from sot.interpreter.control_flow.merge_values import Undecided
from sot.interpreter.frame import PUSH_THEN_NULL
from sot.interpreter.objects import attribute_stores
from sot.interpreter.opcodes.table import op
from sot.support.errors import Break, PyRaise, Reason
from sot.support.lookups import is_missing
from sot.support.own_code import BUILTINS, is_own
from sot.support.places import is_installed
from sot.support.registry import handles
from sot.values.base import ABSENT, ENTERED, NONE, NULL, Const, Lazy, SavedException, Value
from sot.values.callables import CellValue, MadeGlobals, SuperValue
from sot.values.objects import ExceptionValue, TupleValue
from sot.values.objects.exceptions import like_native
from sot.values.wrapping import wrap, wrap_known, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine


@op("NOP", "RESUME", "COPY_FREE_VARS", "END_FOR")
def nothing(m: Machine, frame: Frame, instr: Instr) -> None:
    pass


# ---- the stack
@op("POP_TOP")
def pop_top(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.pop()


@op("PUSH_NULL")
def push_null(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(NULL)


@op("COPY")
def copy(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack[-instr.arg]
    if isinstance(value, SavedException):       # only the copy is ever restored from
        frame.stack[-instr.arg] = NONE
    frame.stack.append(value)


@op("SWAP")
def swap(m: Machine, frame: Frame, instr: Instr) -> None:
    stack = frame.stack
    stack[-1], stack[-instr.arg] = stack[-instr.arg], stack[-1]


@op("LOAD_CONST")
def load_const(m: Machine, frame: Frame, instr: Instr) -> None:
    constant = instr.arg    # only the package's own code has a function here
    value = wrap_known(m, constant) if isinstance(constant, FunctionType) else wrap_new(m, constant)
    if isinstance(value, TupleValue):       # it is the same object in every run
        value.real, value.origin = constant, known(constant, "a constant")
    frame.stack.append(value)


@op("LOAD_ASSERTION_ERROR")
def load_assertion_error(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(Const(AssertionError))


# ---- local variables
@op("LOAD_FAST")
def load_fast(m: Machine, frame: Frame, instr: Instr) -> None:
    value: Any = frame.locals.get(instr.arg)
    if value is None:
        m.throw(UnboundLocalError,
                f"cannot access local variable {instr.arg!r} where it is not associated with a value")
    if type(value) is Lazy:
        value = frame.locals[instr.arg] = wrap(m, value.real, value.origin)
    elif type(value) is Undecided:
        value.refuse()
    frame.stack.append(value)


@op("STORE_FAST")
def store_fast(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    if value is NULL:
        frame.locals.pop(instr.arg, None)
    elif isinstance(value, CellValue) and instr.arg in frame.native.co_cellvars:
        frame.cells[instr.arg] = value
    else:
        frame.locals[instr.arg] = value


@op("DELETE_FAST")
def delete_fast(m: Machine, frame: Frame, instr: Instr) -> None:
    if instr.arg not in frame.locals:
        m.throw(UnboundLocalError,
                f"cannot access local variable {instr.arg!r} where it is not associated with a value")
    del frame.locals[instr.arg]


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(m: Machine, frame: Frame, instr: Instr) -> None:
    """Before an inlined comprehension (PEP 709): save the variable that the comprehension shadows on the stack."""
    name = instr.arg
    if name in frame.cells and name in frame.native.co_cellvars:    # a class body may have a free variable of that name
        frame.stack.append(frame.cells.pop(name))
    elif name in frame.locals:
        load_fast(m, frame, instr)
        del frame.locals[name]
    else:
        frame.stack.append(NULL)


# ---- cells
@op("MAKE_CELL")
def make_cell(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.make_cell(instr.arg)


@op("LOAD_CLOSURE")
def load_closure(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(frame.cells[instr.arg])


@op("LOAD_DEREF")
def load_deref(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.cells[instr.arg].get(m)
    if value is ABSENT:
        empty_cell(m, frame, instr.arg)
    frame.stack.append(value)


@op("STORE_DEREF")
def store_deref(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    frame.cells[instr.arg].set(m, value)


@op("DELETE_DEREF")
def delete_deref(m: Machine, frame: Frame, instr: Instr) -> None:
    cell = frame.cells[instr.arg]
    if cell.get(m) is ABSENT:
        empty_cell(m, frame, instr.arg)
    cell.set(m, ABSENT)


def empty_cell(m: Machine, frame: Frame, name: str) -> None:
    if name in frame.native.co_freevars:
        m.throw(NameError, f"cannot access free variable {name!r} where it is not associated with a value "
                           "in enclosing scope")
    m.throw(UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value")


# ---- globals
@op("LOAD_GLOBAL")
def load_global(m: Machine, frame: Frame, instr: Instr) -> None:
    value = m.namespace(frame.namespace).get(m, instr.arg)
    if value is ABSENT:
        value = builtin(m, frame, instr.arg)
    frame.stack.append(value)


def builtin(m: Machine, frame: Frame, name: str) -> Value:
    found = frame.namespace.get("__builtins__", builtins)
    held = found.__dict__ if isinstance(found, ModuleType) else found
    if is_own(frame.native.co_filename):        # it stands for C code, which looks up no globals
        return wrap_known(m, BUILTINS[name])
    written = m.namespaces.get(id(held))
    if written is not None and (value := written.get(m, name)) is not ABSENT:
        return value
    namespace = known(held, "builtins")
    if name not in held:
        m.guard(HasKeyGuard(namespace, name, False))
        error = ExceptionValue(NameError, [Const(f"name {name!r} is not defined")])
        error.slots = {"name": Const(name)}
        raise PyRaise(error)
    return wrap(m, held[name], Global(namespace, name))


@op("STORE_GLOBAL")
def store_global(m: Machine, frame: Frame, instr: Instr) -> None:
    m.namespace(frame.namespace).set(m, instr.arg, frame.stack.pop())


@op("DELETE_GLOBAL")
def delete_global(m: Machine, frame: Frame, instr: Instr) -> None:
    namespace = m.namespace(frame.namespace)
    if namespace.get(m, instr.arg) is ABSENT:
        m.throw(NameError, f"name {instr.arg!r} is not defined")
    namespace.delete(m, instr.arg)


# ---- attributes
@op("LOAD_ATTR")
def load_attr(m: Machine, frame: Frame, instr: Instr) -> None:
    m.push_result(frame.stack.pop().load_attr(m, instr.arg))


@op("LOAD_METHOD")
def load_method(m: Machine, frame: Frame, instr: Instr) -> None:
    push_callable(m, frame, frame.stack.pop(), instr.arg)


def push_callable(m: Machine, frame: Frame, owner: Value, name: str) -> None:
    """Push ``owner.name`` and the NULL that a call needs beside it."""
    if NULL_FIRST:
        frame.stack.append(NULL)
        m.push_result(owner.load_attr(m, name))
        return
    value = owner.load_attr(m, name)
    if value is ENTERED:
        m.frames[-1].on_return = PUSH_THEN_NULL
    else:
        frame.stack += [value, NULL]


@op("LOAD_SUPER_ATTR")
def load_super_attr(m: Machine, frame: Frame, instr: Instr) -> None:
    name, is_method, _ = instr.arg
    made, cls, self_ = frame.stack[-3:]
    del frame.stack[-3:]
    if made.real is not super or not isinstance(cls.real, type):
        raise Break(Reason.UNSUPPORTED, "a replaced super")
    value = SuperValue(cls.real, self_)
    if is_method:
        push_callable(m, frame, value, name)
    else:
        m.push_result(value.load_attr(m, name))


@op("STORE_ATTR")
def store_attr(m: Machine, frame: Frame, instr: Instr) -> None:
    owner, value = frame.stack.pop(), frame.stack.pop()
    attribute_stores.store(m, owner, instr.arg, value)


@op("DELETE_ATTR")
def delete_attr(m: Machine, frame: Frame, instr: Instr) -> None:
    attribute_stores.store(m, frame.stack.pop(), instr.arg, None)


# ---- modules
PLACES_OF_MODULES = sys.modules, sys.path, sys.meta_path, sys.path_hooks, sys.path_importer_cache


@op("IMPORT_NAME")
def import_name(m: Machine, frame: Frame, instr: Instr) -> None:
    """A loaded module is a constant as long as ``sys.modules`` has the same one. Loading a module is a side effect."""
    names, level = frame.stack.pop().constant(), frame.stack.pop().constant()
    if not is_own(frame.native.co_filename) and builtin(m, frame, "__import__").real is not __import__:
        raise Break(Reason.IMPORT, f"{instr.arg}, by a function that replaces __import__")
    frame.stack.append(import_of(m, frame, instr.arg, tuple(names or ()), level))


@handles(builtins.__import__)
def import_by_builtin(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name, _, _, names, level = take("__import__", args, kwargs, "name", "globals", "locals", "fromlist", "level",
                                    required=1)
    parts = [] if names is None else names.items_list(m)
    if type(name.constant()) is not str or parts is None or level is not None and level.constant() != 0:
        raise Break(Reason.IMPORT, str(name))
    return import_of(m, m.frames[-1], name.constant(), tuple(part.constant() for part in parts), 0)


def import_of(m: Machine, frame: Frame, name: str, names: tuple[str, ...], level: int) -> Value:
    if any(value.real is place for value in m.mutated.values() for place in PLACES_OF_MODULES):
        raise Break(Reason.IMPORT, f"{name}, after a change of where Python looks for modules,")
    base = name
    if level and isinstance(frame.namespace, MadeGlobals):
        raise Break(Reason.IMPORT, f"{name} relative to a package that a dict of the call names")
    if level:
        package = frame.namespace.get("__package__") or frame.namespace.get("__name__", "")
        parent = package.rsplit(".", level - 1)[0]
        base = f"{parent}.{name}" if name else parent
    module = imported(m, base, names)
    if module is None:
        refuse_missing(m, base)
        import_part_of_library(m, frame, base, names)
        raise Break(Reason.IMPORT, base)
    if not names and not level:
        module = loaded_module(m, base.partition(".")[0]) or module
    return module


def imported(m: Machine, base: str, names: tuple[str, ...]) -> Value | None:
    """A loaded module that has these names; None if something is to be loaded."""
    module = loaded_module(m, base)
    if module is None or not isinstance(module.real, ModuleType) or not all(
            name == "*" or hasattr(module.real, name) or submodule(m, module.real, name) for name in names):
        return None
    return module


def refuse_missing(m: Machine, base: str) -> None:
    """Raise the ModuleNotFoundError of a module that no finder finds."""
    parts = base.split(".")
    names = (".".join(parts[:i]) for i in range(1, len(parts) + 1))
    name = next((name for name in names if name not in sys.modules), None)
    if name is not None and is_missing(name):
        m.guard(ResultGuard(known(plain(is_missing), "is_missing"), name, True))
        raise PyRaise(like_native(m, ModuleNotFoundError(f"No module named {name!r}", name=name), None, {}))


def import_part_of_library(m: Machine, frame: Frame, base: str, names: tuple[str, ...]) -> None:
    """A loaded library may import a part of itself, or of another library, when the part is first needed. That is no
    side effect of the program, and a file has none. The part is imported at once, outside the capture, unless its code
    could see what the frame has done before.
    """
    wanted = (base, names)
    is_loaded = base.partition(".")[0] in sys.modules and is_installed(frame.native.co_filename)
    has_effects = m.mutated or m.effects or m.state_log
    if (is_loaded or m.assumptions.of_file) and wanted not in m.assumptions.imported and not has_effects:
        raise RestartCapture(f"{base} is imported before the capture", imported=frozenset({wanted}))


def loaded_module(m: Machine, name: str) -> Value | None:
    """What ``sys.modules`` has under a name, or None."""
    found = sys.modules.get(name)
    return None if found is None else wrap(m, found, Item(known(sys.modules, "sys.modules"), name))


def submodule(m: Machine, module: ModuleType, name: str) -> Value | None:
    """The loaded module that ``from module import name`` returns if the module has no such attribute."""
    m.guard(HasKeyGuard(Attr(known(module, module.__name__), "__dict__"), name, False))
    return loaded_module(m, f"{module.__name__}.{name}")


@op("IMPORT_FROM")
def import_from(m: Machine, frame: Frame, instr: Instr) -> None:
    module = frame.stack[-1]
    if hasattr(module.real, instr.arg):
        m.push_result(module.load_attr(m, instr.arg))
        return
    found = submodule(m, module.real, instr.arg)
    if found is None:
        raise Break(Reason.IMPORT, instr.arg)
    frame.stack.append(found)
