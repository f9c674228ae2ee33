"""Operations on lists of tensors (``torch._foreach_mul``) as one operation on each tensor."""
from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx

from sot.graph.nodes import name_of
from sot.graph.number_rules import rule_of

PREFIX = "_foreach_"
SCALED = {"addcmul": "value", "addcdiv": "value"}   # with a number as the fourth argument


@contextmanager
def nodes_of_each(node: fx.Node) -> Iterator[list[fx.Node] | None]:
    """The nodes of a graph that do to each tensor what ``node`` does to all. They are removed afterwards. None if there
    are no such nodes.
    """
    name, lists = name_of(node).partition(".")[0].removeprefix(PREFIX), node.args[:1]
    args, kwargs, changes = list(node.args), dict(node.kwargs), name.endswith("_")
    if (keyword := SCALED.get(name.rstrip("_"))) and len(args) > 3:
        kwargs[keyword] = args.pop()
    if not isinstance(lists[0], (list, tuple)) or kwargs.keys() - {"value", "alpha"} or (
            rule_of(name) is not None or not changes and not only_parts(node)):
        yield None
        return
    made, results = [], lists[0] if changes else node.meta.get("example_value")
    with node.graph.inserting_before(node):
        for i in range(len(lists[0])):
            given = tuple(part(v, i) for v in args), {key: part(v, i) for key, v in kwargs.items()}
            result: Any = results[i] if results else None
            fake = result.meta.get("example_value") if isinstance(result, fx.Node) else result
            made.append(one := node.graph.call_method(name, *given))
            one.meta = {**node.meta, "example_value": fake}
    try:
        yield made
    finally:
        for one in made:
            node.graph.erase_node(one)


def part(value: Any, i: int) -> Any:
    return value[i] if isinstance(value, (list, tuple)) else value


def only_parts(node: fx.Node) -> bool:
    """Whether only the tensors in a result are used."""
    return all(user.target is operator.getitem and user.args[0] is node for user in node.users)
