"""Checks the JSON description of a saved program before torch reads it.

torch looks up functions by name, evaluates expressions and guards, imports the modules that a tree of containers
names, and writes names into the source of a graph that it compiles. So the allowed contents are listed here, by key.
Text that a graph passes on as data (a message, a mode) is not restricted.
"""
from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from sot.torch_compat.exporting.archive import is_operator

FUNCTIONS = frozenset("""
    Max Min Mod PythonMod FloorDiv CleanDiv CeilDiv IntTrueDiv FloatTrueDiv Where ModularIndexing PowByNatural FloatPow
    Abs ToFloat TruncToInt TruncToFloat CeilToInt FloorToInt RoundToInt floor ceiling Pow Mul Add Integer Symbol
    OpaqueUnaryFn_sqrt Eq Ne Ge Gt Le Lt Not And Or Float Rational max min abs
    Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan
""".split())
FORBIDDEN = ("aten.from_file", "aten.set_", "aten.set.", "aten._print", "aten.resize_", "aten.record_stream",
             "aten.data", "aten._resize_output", "aten.save", "aten.load", "aten.set_data", "aten.warn")
# What graphs compute with sizes. No powers, shifts or factorials: a few of them make numbers that fill the memory.
ARITHMETIC_OF = {
    "_operator": {"add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pos", "abs", "eq", "ne", "lt", "le", "gt",
                  "ge", "and_", "or_", "xor", "not_", "invert", "getitem", "index"},
    "math": {"ceil", "floor", "trunc", "sqrt", "log", "log2", "log10", "exp", "isnan", "isinf", "isfinite", "fabs"},
}
# Levels of vmap.
TRANSFORMS = {*(f"torch._functorch.predispatch.{name}" for name in (
    "_add_batch_dim", "_remove_batch_dim", "_vmap_increment_nesting", "_vmap_decrement_nesting")),
    "torch._functorch.vmap.lazy_load_decompositions"}
RESERVED = frozenset({"aten", "prims", "prim", "higher_order", "debugprims", "profiler", "inductor"})
# Operators that call graphs of the same file. None of them calls other functions.
HIGHER_ORDER = frozenset("""
    cond while_loop map map_impl scan associative_scan wrap invoke_subgraph wrap_with_autocast
    wrap_with_set_grad_enabled wrap_activation_checkpoint tag_activation_checkpoint flex_attention out_dtype
""".split())
PRIM = frozenset("abs max min device dtype layout NumToTensor".split())     # the others call, print and raise
# The operators of ATen that have the name of a method.
OPERATORS = {f"__{place}{name}__" for name in ("and", "or", "xor", "lshift", "rshift") for place in ("", "i")}
LONGEST, LARGEST_POWER = 4000, 16      # of an expression's text; of an exponent
ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Constant, ast.Name, ast.Load,
              ast.Call, ast.keyword, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
OF_GUARDS = (*ARITHMETIC, ast.Subscript, ast.Attribute)     # L['x'].size()[0] >= 2
METADATA = {"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node"}
CONTAINERS = {"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", "collections.deque"}
IDENTIFIER = re.compile(r"[\w.]*")
PLAIN = re.compile(r"[^'\"\\\x00-\x1f\x7f]*")       # cannot end a literal in source
SYMBOL = re.compile(r"[A-Za-z_]{0,8}\d{0,5}")       # torch counts up to the number of a symbol
Found = Iterator[str]
# The libraries whose operators the caller admits.
LIBRARIES: ContextVar[frozenset[str]] = ContextVar("LIBRARIES", default=frozenset())


def problem_of_program(model: Any) -> str | None:
    """Why a description is refused; None if it contains only a graph."""
    return next(problems(model), None)


def problems(data: Any) -> Found:
    if isinstance(data, dict):
        if "target" in data and "inputs" in data and not is_allowed(str(data["target"])):
            yield f"calls {data['target']}, {refusal_of(str(data['target']))}"
        for key, value in data.items():
            yield from RULES.get(key, of_others)(key, value)
    elif isinstance(data, list):
        for item in data:
            yield from problems(item)
    elif isinstance(data, str) and not PLAIN.fullmatch(data):
        yield f"has the text {data!r}, which is not a name"


def of_others(key: str, value: Any) -> Found:
    if not PLAIN.fullmatch(key):
        yield f"has the name {key!r}, which is not a name"
    yield from problems(value)


def names(key: str, value: Any) -> Found:
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str) and not IDENTIFIER.fullmatch(name):
            yield f"has the name {name!r}, which is not a name"
        elif not isinstance(name, str):
            yield from problems(name)


def data_text(key: str, value: Any) -> Found:
    """A text argument of an operator: data, which is quoted in the source of a graph."""
    yield from () if isinstance(value, str) else problems(value)


def expression(key: str, value: Any) -> Found:
    if not is_arithmetic(str(value)):
        yield f"has the expression {str(value)[:80]!r}, which is not arithmetic"


def operator_text(key: str, value: Any) -> Found:
    if not is_allowed(str(value)):
        yield f"names {value}, {refusal_of(str(value))}"


def guards(key: str, value: Any) -> Found:
    for text in value if isinstance(value, list) else [value]:
        if not is_guard(str(text)):
            yield f"has the guard {str(text)[:80]!r}, which is not a comparison of sizes"


def metadata(key: str, value: Any) -> Found:
    """The origin of a node. torch looks up only the function that it names."""
    for name, text in value.items() if isinstance(value, dict) else [(str(value), None)]:
        if name not in METADATA or name == "source_fn_stack" and "__" in str(text):
            yield f"says of a node that its {name} is {text!r}"


def tree(key: str, value: Any) -> Found:
    """The containers of arguments and results. For other containers torch would import the classes."""
    if value in (None, ""):
        return
    try:
        version, root = json.loads(value)
        known = version == 1 and is_tree(root)
    except (ValueError, TypeError):
        known = False
    if not known:
        yield f"has arguments or results of an unknown structure: {str(value)[:80]}"


def is_tree(node: Any) -> bool:
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        return False
    if node.get("type") is None:
        return node.get("context") is None and not node["children_spec"]
    context = json.loads(node["context"])
    keys = context if isinstance(context, list) else [context]
    return node["type"] in CONTAINERS and all(map(is_plain, keys)) and all(map(is_tree, node["children_spec"]))


def is_plain(key: Any) -> bool:
    """Whether it is a key that may be written into source, or None."""
    return key is None or isinstance(key, int | float) or isinstance(key, str) and bool(PLAIN.fullmatch(key))


def constant_input(key: str, value: Any) -> Found:
    """A constant argument, which torch writes into a guard."""
    text = value.get("value", {}) if isinstance(value, dict) else value
    if not is_plain(text.get("as_string") if isinstance(text, dict) else text):
        yield f"has the argument {text!r}"
    yield from problems(value)


def graph_inputs(key: str, value: Any) -> Found:
    """The named arguments of a graph or of a node."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and "arg" not in item:
            yield from constant_input(key, {"value": item})
    yield from problems(value)


def symbols(key: str, value: Any) -> Found:
    for name in value if isinstance(value, dict) else [str(value)]:
        if not SYMBOL.fullmatch(name):
            yield f"has the symbol {name!r}"
    yield from problems(value)


def nothing(key: str, value: Any) -> Found:
    if value:
        yield f"has {key}, which no saved model needs"


RULES: dict[str, Callable[[str, Any], Found]] = {
    "target": data_text,        # `problems` has checked it
    "name": names, "as_name": names, "as_names": names, "forward_arg_names": names,
    "as_string": data_text, "as_strings": data_text,
    "expr_str": expression, "as_operator": operator_text, "guards_code": guards, "metadata": metadata,
    "in_spec": tree, "out_spec": tree, "constant_input": constant_input, "inputs": graph_inputs,
    "range_constraints": symbols, "treespec_namedtuple_fields": nothing, "as_custom_obj": nothing,
    "as_opaque": nothing, "custom_obj": nothing, "token": nothing,
}


# ---- operators --------------------------------------------------------------------------------------------
def is_allowed(target: str) -> bool:
    """Whether it is an operator of ATen that accesses no file, a higher-order operator, or arithmetic.

    torch resolves a target attribute by attribute, from ``torch``, ``math`` or ``operator``. So only names of a known
    form are allowed: ``torch.hub.load`` and ``_operator.call`` would run any function.
    """
    module, _, name = target.rpartition(".")
    if module in ARITHMETIC_OF:
        return name in ARITHMETIC_OF[module]
    if module == "torch":
        return name.startswith("sym_") or name == "_sym_sqrt"
    if target in TRANSFORMS:
        return True
    parts = target.removeprefix("torch.ops.").split(".")
    if not target.startswith("torch.ops.") or any(part.startswith("__") for part in parts[1:]
                                                  if part not in OPERATORS):
        return False
    if parts[0] == "higher_order":
        return len(parts) == 2 and parts[1] in HIGHER_ORDER
    if len(parts) != 3 or parts[0] == "prim" and parts[1] not in PRIM:
        return False
    if parts[0] in LIBRARIES.get() - RESERVED:
        return is_operator(*parts)
    return parts[0] in ("aten", "prims", "prim", "sot") and not ".".join(parts).startswith(FORBIDDEN)


def refusal_of(target: str) -> str:
    library, *rest = target.removeprefix("torch.ops.").split(".")
    if not target.startswith("torch.ops.") or len(rest) != 2 or library in RESERVED:
        return "which is not an operator that a saved model needs"
    return f"an operator of {library}: import the library that defines it, and pass operators=[{library!r}]"


# ---- expressions and guards -------------------------------------------------------------------------------
def is_arithmetic(text: str) -> bool:
    """Whether it consists of numbers, symbols, operators, and calls of the functions for sizes."""
    tree = parsed(text)
    if tree is None:
        return False
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    texts: dict[int, Callable[[str], bool]] = {id(node.args[0]): str.isidentifier for node in calls if is_symbol(node)}
    texts.update((id(node.args[0]), is_number) for node in calls if is_float(node))
    return all(isinstance(node, ARITHMETIC) and is_harmless(node, texts.get(id(node))) for node in ast.walk(tree))


def is_guard(text: str) -> bool:
    """Whether it compares sizes of arguments: ``L['x'].size()[0] <= 2*L['y'].size()[0]``."""
    tree = parsed(text)
    if tree is None:
        return False
    texts: dict[int, Callable[[str], bool]] = {id(node.slice): is_plain for node in ast.walk(tree)
                                               if isinstance(node, ast.Subscript)}
    return all(isinstance(node, OF_GUARDS) and is_harmless(node, texts.get(id(node)), True) for node in ast.walk(tree))


def parsed(text: str) -> ast.AST | None:
    """The tree of an expression that is quick to evaluate; None for others."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if len(text) <= LONGEST and all(map(is_small_power, ast.walk(tree))) else None


def is_harmless(node: ast.AST, is_text: Callable[[str], bool] | None, sizes: bool = False) -> bool:
    """Whether a node only computes.

    Arguments:
        is_text: the condition that a text has to meet here; None where no text is allowed.
        sizes: whether the size of an argument may be read.
    """
    if isinstance(node, ast.Attribute):
        return node.attr in ("size", "stride", "storage_offset") or (
            isinstance(node.value, ast.Name) and node.value.id == "math" and node.attr in ("inf", "isnan"))
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        return named or sizes and isinstance(node.func, ast.Attribute)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float) or is_text is not None and is_text(str(node.value))
    return not isinstance(node, ast.Name) or not node.id.startswith("_")


def is_small_power(node: ast.AST) -> bool:
    """Whether it is no power, or one that is quick to evaluate: a small exponent, and no power in its base."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift | ast.MatMult):
        return False
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, exponent = node.left, node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "Pow" in node.func.id:
        if len(node.args) != 2:
            return False
        base, exponent = node.args
    else:
        return True
    if isinstance(exponent, ast.Call) and len(exponent.args) == 1:     # Integer(2)
        exponent = exponent.args[0]
    if isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    nested = any(isinstance(n, ast.Name) and "Pow" in n.id or isinstance(n, ast.Pow) for n in ast.walk(base))
    return not nested and isinstance(exponent, ast.Constant) and isinstance(exponent.value, int | float) and (
        exponent.value <= LARGEST_POWER)


def is_symbol(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "Symbol" and bool(node.args)


def is_float(node: ast.Call) -> bool:
    """``Float('0.5', precision=53)``"""
    return isinstance(node.func, ast.Name) and node.func.id == "Float" and len(node.args) == 1 and all(
        keyword.arg == "precision" and isinstance(keyword.value, ast.Constant) and keyword.value.value == 53
        for keyword in node.keywords)


def is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,20}(\.\d{0,60})?(e[-+]?\d{1,3})?", text) is not None
