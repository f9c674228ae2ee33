"""What a program reads and others exchange between its calls for something that looks the same: an equal object of
another kind, a getter of the same type, an attribute of an enum's member, a flag of torch.
"""
from __future__ import annotations

import re

EXPRESSIONS = {
    "int": ["SPAN.stop", "len(MARKS)", "RECENT.maxlen or 0", "Kind.A.weight", "len(KEPT)", "PICK([<int>, <int>])"],
    "bool": ["torch.backends.mkldnn.enabled", "hasattr(Kind.B, 'label')"],
    "str": ["str(CUT)", "CALLER(<str>)", "Base.__name__", "str(Base.__doc__)", "','.join(sorted(map(str, MARKS)))"],
    "list": ["<list>[CUT]", "[*SPAN]", "[*KEPT]"],
}
STATEMENTS = [
    "MARKS.add(<int>)", "RECENT.append(<int>)", "Kind.A.weight += <int>", "kept_log.warning('kept %d', <int>)",
    "items[CUT] = <list>", "del items[CUT]",
]
NAME = re.compile(r"[\w.]*\w")    # what a change is of, if it is of one name
CHANGES_BETWEEN = (
    "SPAN = range(0, 4, 2)", "CUT = slice(0, True)", "CUT = slice(0, 1.0)", "MARKS = {True, 2}", "MARKS = {1.0, 2}",
    "PICK = operator.itemgetter(-1)", "CALLER = operator.methodcaller('title')",
    "RECENT = collections.deque([1, 2], 2)",
    "Kind.A.weight = 7", "Kind.B.label = 'b'", "Base.__name__ = 'Renamed'", "Base.__doc__ = 'New.'",
    "kept_log.addHandler(Keep())", "state(torch._C._set_mkldnn_enabled, False)",
)
