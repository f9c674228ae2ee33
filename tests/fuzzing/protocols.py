"""Phrases of objects whose special methods are code of the program, as those in grammar.py: expressions by kind, and
statements.

``iter`` is an iterable: one whose ``__iter__`` counts, one whose iterator has no ``__iter__``, or a list. ``odd`` is an
object of which each special method returns the same, often what it must not return.
"""
from __future__ import annotations

EXPRESSIONS = {
    "iter": ["loader", "Cursors(<list>)", "loader.over(<list>)", "<list>", "map(abs, <iter>)", "enumerate(<iter>)",
             "filter(None, <iter>)", "itertools.chain(<iter>, <iter>)", "itertools.islice(<iter>, 3)"],
    "odd": ["Odd(<int>)", "Odd(<any>)", "Odd(<bool>)", "Odd(<str>)", "Odd(<float>)", "Odd(Odd(<int>))"],
    "int": ["len(<odd>)", "hash(<odd>)", "int(<odd>)", "operator.index(<odd>)", "items[<odd>]", "len({<odd>: 1})",
            "len([*<iter>])", "loader.epochs", "sum(1 for v in <iter>)", "len({*<iter>})", "abs(<odd>) ",
            "operator.length_hint(<odd>)", "max(map(len, map(str, <iter>)), default=2)"],
    "float": ["float(<odd>)", "complex(<odd>).real", "round(<odd>)"],
    "bool": ["bool(<odd>)", "not <odd>", "<any> in <odd>", "<odd> == <any>", "<odd> < <any>", "<int> in <iter>",
             "any(<iter>)", "all(<iter>)", "<odd> and <bool>"],
    "str": ["str(<odd>)", "repr(<odd>)", "f'{<odd>}'", "f'{<odd>!r:>5}'", "format(<odd>, <str>)", "'%s' % (<odd>,)",
            "','.join(map(str, <iter>))[:20]", "str([<odd>])", "<str>[<odd>:]", "'-'.join(<iter>)"],
    "list": ["[*<iter>]", "list(<iter>)", "[0, *<iter>]", "sorted(map(str, <iter>))", "[*reversed([*<iter>])]",
             "[v for v in <iter>]", "[*itertools.zip_longest(<iter>, <iter>)]", "list(itertools.pairwise(<iter>))",
             "[*zip(<iter>, <list>)]", "[*tuple(<iter>)]", "items[<odd>:]", "[<int>] * <odd>"],
    "any": ["<odd>", "loader", "[*<iter>]"],
}
STATEMENTS = [
    "a, *other = <iter>", "*other, a = <iter>", "a, b = <iter>", "items += <iter>", "items.extend(<iter>)",
    "items[1:] = <iter>", "table = dict.fromkeys(<iter>, <int>)", "seen = {*<iter>}", "log.append(<odd>)",
    "it = iter(<iter>); log.append(next(it, None)); log.append([*it])", "log.append(functools.reduce(max, <iter>))",
    "for i, v in enumerate(<iter>):\n    sot.graph_break()\n    log.append(v)",
    "for p, q in zip(<iter>, map(str, <iter>)):\n    log.append(q)\n    scale(x)",
    "for v in itertools.takewhile(lambda p: p != <int>, <iter>):\n    log.append(v)\n    sot.graph_break()",
    "print(<odd>)", "if <odd>: log.append(1)", "loader.over(<list>)",
]
