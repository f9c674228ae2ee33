"""The programs that the fuzzer writes, as a grammar: for each kind of phrase its productions, the simplest first.

``<int>`` stands for any phrase of the kind ``int``, and so on; ``<block>`` for statements, indented as the hole is.
Kinds of expressions are typed, so that most programs run a long way before something raises. Numbers, strings and
containers are kept small, and loops short.
"""
from __future__ import annotations

import re
import textwrap

from . import look_alikes, protocols, tensors
from .world import CHANGES_BETWEEN, INPUTS, NUMBERS

EXPRESSIONS = {
    "const": ["0", "1", "2", "3", "-1", "5"],
    "text": ["'k'", "'m'", "''", "'a-b'", "'Köln'"],
    "num": ["2", "0.5", "-1.5", "<int>", "r", "flag", "<scalar>"],
    "intop": ["+", "-", "//", "%", "&", "|", "^"],
    "relop": ["<", "==", "!=", ">=", ">", "<="],
    "vecop": ["+", "-", "*", "/"],
    "error": ["ValueError", "KeyError", "Custom", "IndexError", "TypeError", "StopIteration", "ZeroDivisionError"],
    "any": [
        "<int>", "<str>", "<list>", "<dict>", "<vec>", "<scalar>", "<bool>", "pair", "None", "box", "seen", "<float>",
        "rows", "(<int>, <any>)", "[<any>, <any>]", "{<str>: <any>}", "type(<any>).__name__", "Custom(<int>)",
    ],
    "int": [
        "a", "b", "c", "i", "<const>", "LIMIT", "len(items)", "x.shape[0]", "box.n", "(<int> <intop> <int>)",
        "(<int> * <int>) % 11", "len(table)", "len(s)", "len(seen)", "x.dim()", "x.numel()", "x.size(-1)",
        "items[-1]", "items[<int>]", "items[<int> % len(items)] if items else <int>", "table.get(<str>, <int>)",
        "table[<str>]", "box.double", "box[<int>]", "box(<int>)", "len(box)", "box.total(<int>)", "Box.made(<int>).n",
        "box.missing", "box.keep(<int>)", "COUNT", "CACHE.get(<str>, <int>)", "STATE.n", "sum(items)", "max(items)",
        "abs(<int>)", "min(items, default=<int>)", "divmod(<int>, 3)[1]", "items.count(<int>)", "items.index(<int>)",
        "s.find('k')", "(<int> if <bool> else <int>)", "(<int> and <int>)", "(<int> or <int>)", "(not <int>)",
        "(a := <int>)", "next(iter(items), <int>)", "sum(v for v in <list> if v <relop> <int>)",
        "next(v for v in items if v > <int>)", "(lambda v, w=<int>: v - w + b)(<int>)",
        "sum(v * w for v, w in zip(items, range(3)))", "-<int>", "~<int>", "helper(<int>, <vec>)[0]", "int(<bool>)",
        "functools.reduce(lambda p, q: p - q, <list>, <int>)", "int(<scalar>) % 7", "int((<vec> > <num>).sum())",
        "<vec>.argmax().item()", "round(<float>, 2) // 1 % 5", "len(<str>)", "ord(t[0])",
        "int('4' + str(abs(a) % 10)) % 9", "opaque(<int>)", "pair[0]", "(*pair, <int>)[-1]",
        "operator.add(<int>, <int>)", "math.floor(<float>)", "sum(map(len, rows))", "gen_sum(<list>)",
        "<int> ** 2 % 7", "hash(<int>)", "(<int> << 1) % 8", "bisect.bisect(sorted(items), <int>)",
        "random.randrange(5)", "Kind.B.value", "max(<int>, <int>, key=lambda v: v % 3)", "Point(<int>, <int>).b",
        "int(<str> in table)", "len({*items})", "len(f'{<any>}') % 5", "cached(<int>)",
        "x.stride(0)", "x.storage_offset()", "x._version", "x.output_nr", "Number(<int>)", "Number(<int>) + <int>",
        "Level.LOW", "Level(2).value", "dataclasses.replace(Pair(<int>), first=<int>).first", "locals()['a']",
        "locals().get('b', <int>)", "(peek('a'), a)[0]", "vars(box).get('n', <int>)", "getattr(box, <str>, <int>)",
        "<int>.bit_length()", "eval('a')", "globals()['LIMIT']", "type(box).made_count", "x.element_size()",
        "int(Number(<int>))", "w.output_nr", "len(dataclasses.asdict(Pair(<int>, items)))", "keyworded(<int>)",
        "keyworded(<int>, extra=<int>)", "defaulted(<int>)", "described.part",
        "packed(<list>)[<int>]", "sum(packed(items))",
        "int(x.detach().numpy().argmax())", "int((x.detach().numpy() > <float>).sum())",
        "<read> % 9", "<mat>.stride(0)", "<mat>.stride(-1)", "<mat>.storage_offset()", "<empty>.numel()",
        "<mat>.shape[-1]",
    ],
    "float": [
        "r", "0.5", "float(<int>)", "r * 0.5", "<int> / 2", "r + <int>", "math.sqrt(abs(r))", "float(<scalar>)",
        "<scalar>.item()", "round(r, 1)", "random.random()", "<int> / <int>", "x.tolist()[0]", "abs(r) ** 0.5",
        "-0.0", "float('nan')", "float('inf')", "math.copysign(1, <float>)", "-<float>", "<float> % 1", "r * 0",
        "float(x.detach().numpy().sum())", "x.detach().numpy().item(<int>)",
        "complex(<float>, 1).imag", "complex(<float>, -0.0).real", "math.fsum(items)", "min(r, 0.0)",
        "min(<float>, <float>)", "max(r, <float>)", "<read> * 0.5",
    ],
    "bool": [
        "flag", "<int> <relop> <int>", "<int> in items", "<str> in table", "not <bool>", "<bool> and <bool>", "<int>",
        "<bool> or <bool>", "isinstance(box, Box)", "isinstance(<any>, (int, str))", "items is other", "x is y",
        "items", "<list> == <list>", "<list> < <list>", "any(v > <int> for v in <list>)", "all(<list>)",
        "x.requires_grad", "<str>", "<int> <relop> <int> <relop> <int>", "hasattr(box, 'extra')",
        "<str>.startswith(<str>)", "seen", "<int> in seen", "bool((<vec> > <num>).any())", "(<scalar> <relop> <num>)",
        "<scalar> > 0", "box == Box(<int>)", "box", "<float> > 1", "<int> in box", "<any> is None",
        "bool((x.detach().numpy() > <float>).any())", "packed(<list>) == b'a'",
        "torch.is_grad_enabled()", "callable(box)", "(<vec> == <vec>).all()", "x.is_leaf",
        "torch.equal(<vec>, <vec>)", "<str> < <str>", "<dict> == table", "seen <= {1, 2}", "pair == (a, b)",
        "x is pair[-1]", "net.scale is net.scale.float()", "net.scale.requires_grad",
        "(x * net.scale).dtype is x.dtype",
        "x.is_contiguous()", "x._is_view()", "x._base is None", "x.grad_fn is None", "x.retains_grad", "x.is_set_to(y)",
        "x.data_ptr() == y.data_ptr()", "x.dtype.is_floating_point", "torch.is_autocast_enabled('cpu')",
        "torch.get_default_dtype() == torch.float32", "type(x) is torch.Tensor", "x.is_inference()", "x.is_complex()",
        "isinstance(<int>, Number)", "math.isnan(<float>)", "str(<float>) == '-0.0'",
        "isinstance(x, torch.nn.Parameter)",
        "x.is_shared()", "w.is_leaf", "isinstance(<dict>, collections.OrderedDict)", "type(n) is int", "<bool> is True",
        "<mat>.is_contiguous()", "<mat>._is_view()", "<mat>.stride() == mat.stride()", "mat.contiguous() is mat",
    ],
    "str": [
        "logged(<str>, <any>)", "logged(a, items, s)",
        "s", "t", "<text>", "f'{<int>}-{<str>!r:>6}'", "(<str> + <str>)[:8]", "<str>[::-1]", "<str>.upper()",
        "str(<int>)", "','.join(map(str, <list>))", "repr(<list>)", "type(box).__name__", "<str>[1:3]",
        "<str>.replace('k', 'mm')[:6]", "'%d:%s' % (<int>, <str>)", "'{0}{1!r}'.format(<int>, <str>)", "str(x.shape)",
        "str(x.dtype)", "<str>.title()", "f'{<float>:.2f}'", "'-'.join(<str>.split('-'))", "<str> * 2", "str(<bool>)",
        "repr(box)", "f'{box}'", "str(<any>)", "f'{x.shape[0]:03d}{<bool>}'", "<str>.partition('-')[0]",
        "chr(97 + <int> % 5)", "f'{<scalar>:.1f}'", "next(iter(table))",
        "type(x.grad_fn).__name__", "f'{<int>:>4}|{<float>:+.1e}'", "f'{<int> = }'", "str(<float>)",
        "repr(Pair(<int>))",
        "repr(Point(<int>))", "Word(<str>)", "'{:>{}}'.format(<str>, abs(<int>) % 9)", "'%s' % <float>",
        "str(Level.LOW)",
        "f'{box!r:>8}'", "repr(type(x))", "', '.join(f'{k}={v}' for k, v in table.items())[:20]", "str(-0.0 * <int>)",
        "repr(Level(1))", "Word(<str>).loud()", "f'{r!r}{a}'", "'%(a)s' % {'a': <int>}", "str(x.layout)", "x.type()",
    ],
    "list": [
        "items", "other", "[<int>, <int>]", "[]", "items[1:]", "<list>[::-1]", "(<list> + <list>)[:6]",
        "<list>[:2] * 2", "[v + a for v in <list>]", "[v for v in <list> if v <relop> <int>]",
        "list(range(<int> % 5))", "sorted(<list>)", "sorted(items, key=lambda v: -v)", "list(table.values())",
        "[*<list>[:3], <int>]", "[p + q for p in items for q in pair][:5]", "list(map(lambda v: v * 2 % 9, <list>))",
        "list(gen(<int> % 4, <int>))", "list(itertools.accumulate(items))", "rows[0]", "copy.copy(items)",
        "list(filter(None, <list>))", "[*reversed(<list>)]", "(items or [<int>])", "list(<list>)",
        "[len(v) for v in rows]", "[v for v in box]", "[*zip(*[iter(<list>)] * 1)][0:0]", "items.copy()",
        "list(itertools.islice(itertools.count(<int>), 3))", "[(c := v) for v in <list>]", "STACK",
        "list(dict.fromkeys(<list>))", "list(itertools.chain(<list>[:2], pair))",
        "[v for v, _ in itertools.groupby(<list>)]", "[*x.shape]", "sorted(seen)", "[*seen]", "[*(seen | {*<list>})]",
        "[*dataclasses.astuple(Pair(<int>, <int>))]", "[*{<int>, <int>}]", "[*x.stride()]", "[*<mat>.stride()]",
        "Items(<list>)",
        "[len(k) for k in reversed(<dict>)]", "[v for v in dict.fromkeys(iter(<list>))]",
        "[*range(3)][slice(<int>, None)]",
    ],
    "dict": [
        "table", "{}", "{<str>: <int>}", "dict(table)", "{k: v + 1 for k, v in table.items()}",
        "{**table, <str>: <int>}", "dict(zip('km', <list>))", "table | {<str>: <int>}", "dict(k=<int>)",
        "{v: k for k, v in sorted(table.items())} and {}", "dict(sorted(table.items()))",
        "collections.Counter(<str>[:4])", "vars(STATE)", "collections.OrderedDict(<dict>)",
        "Options(k=<int>)", "collections.defaultdict(int, <dict>)", "dataclasses.asdict(Pair(<int>))",
        "dict.fromkeys(<str>, <int>)", "collections.ChainMap({<str>: <int>}, table)",
        "types.SimpleNamespace(k=<int>).__dict__",
    ],
    **tensors.EXPRESSIONS,
}
for more in (protocols.EXPRESSIONS, look_alikes.EXPRESSIONS):
    for kind, productions in more.items():
        EXPRESSIONS[kind] = [*EXPRESSIONS.get(kind, ()), *productions]

ASSIGNMENTS = [
    "a = <int>", "b = (<int>) % 9", "c = <int>", "x = <vec>", "y = <vec>", "z = <scalar>", "s = (<str>)[:8]",
    "t = (<str>)[:8]", "r = <float>", "items = <list>", "other = <list>", "table = <dict>", "flag = <bool>",
    "pair = (<int>, <any>)", "seen = {*<list>, <int>, 8, 16}", "box = Box(<int>)", "log.append(<any>)",
    "from math import floor as fl; a = fl(<float>)", "import operator as op_; a = op_.sub(a, <int>)",
]
CHANGES = [
    "a += <int>", "items.append(<int>)", "items[0] = <int>", "items.pop()", "items.pop(0)", "items += [<int>, <int>]",
    "s += <text>", "items.insert(<int>, <int>)", "items.remove(<int>)", "items.sort()", "items.reverse()",
    "items.extend((<list>)[:2])", "other = items", "items.clear()", "items[1:2] = (<list>)[:3]", "del items[<int>]",
    "del items[:1]", "items[<int>] = <int>", "items[::2] = items[::2]", "table[<str>] = <int>", "del table[<str>]",
    "table.pop(<str>, None)", "table.setdefault(<str>, <int>)", "table.update(<dict>)", "table |= <dict>",
    "log.append(table.popitem())", "seen.add(<int>)", "seen.discard(<int>)", "seen |= {<int>}",
    "seen ^= {*<list>}", "seen -= {*<list>}", "log.append(seen.pop())",
    "rows.append(items)", "rows[0] = <list>", "rows = [items, other]",
    "rows.append(rows)", "rows = copy.deepcopy(rows)", "rows[-1].append(<int>)", "a, b = b, a",
    "a, *other = [*items, <int>]", "(a, b), c = (<int>, <int>), <int>", "*items, c = [*items, <int>]",
    "a, b, c = <list>", "box.n = <int>", "box.n += <int>", "box.double = <int>", "box.extra = <any>", "del box.extra",
    "setattr(box, 'n', <int>)", "box.push(<int>)", "box.child = Box(<int>)", "box.child.n += <int>",
    "box.items = items", "box.items.append(<int>)", "box[<int>] = <int>", "box += <int>", "box.x = <vec>",
    "box.x += <num>", "box, STATE_ = Box(<int>), box", "log.append(box.__dict__)", "box = copy.copy(box)",
    "fuel.append(0)", "global_ = STATE; global_.n += <int>", "STACK.append(<int>)", "CACHE[<str>] = <any>",
    "STATE.n = <int>", "bump()", "del CACHE[<str>]", "log.append((a, b, c, s))", "log.append(f'{<any>}'[:40])",
    "pair = pair[:1] + (<any>,)", "del c; c = <int>", "del r\nr = <float>", "log.append([<any> for i in range(2)])",
    "log.append(lambda v=<int>: v + a)", "log.append(log.pop()(<int>) if log and callable(log[-1]) else None)",
    "it = iter(items); a = next(it); log.append([*it])", "it = gen(3, <int>); next(it); log.append(it.send(<int>))",
    "log.append([*map(lambda p, q: p - q, items, other)])", "log.append(Point(<int>, b=<any>))",
    "log.append(Kind(<const>))",
    "globals()['LIMIT'] = <int>", "log.extend([(lambda v=v: v + a) for v in (1, 2)])", "exec('a = 5')",
    "keyworded.__kwdefaults__['extra'] = <int>", "defaulted.__defaults__ = (<int>,)",
    "log.append({**locals()}.get('a'))",
    "table = Options(k=<int>, m=<int>)", "log.append(sorted(k for k in locals() if len(k) == 1))",
    "described.value = <int>",
    "import math as m_\nlog.append(m_.floor(r) if r == r and abs(r) < 9 else 0)", "box.made_count = <int>",
    "type(box).made_count += 1", "log.append(complex(<float>, <float>))", "pair = (-0.0, *pair[1:])", "r = r * -0.0",
    "log.append(dataclasses.replace(Pair(<int>, items), first=<int>))", "log.append(sys.getrefcount)",
    "WEAK['new'] = Box(<int>); log.append(len(WEAK))", "WEAK['box'] = box; log.append(WEAK.get('box') is box)",
]
BREAKS = [
    "sot.graph_break()", "a = int(<scalar>) % 5", "r = <scalar>.item()", "log.append(opaque(<any>))",
    "append_to(items, <int>)", "poke(box)", "log.append(x.tolist())", "b = <vec>.nonzero().shape[0]", "exec('pass')",
    "log.append(time.time() > 0)", "scale(x)", "time.perf_counter()", "c = random.randrange(4)",
    "log.append(id(x) == id(y))", "log.append(x.numpy().sum() > 1)",
    "log.append(lineno() > 0)", "log.append((peek('b'), b))", "log.append(x.detach().numpy().tolist())",
    "with torch.no_grad():\n    x = x * 2\n    sot.graph_break()\n    y = x + <num>",
    "with torch.autocast('cpu', torch.bfloat16):\n    z = <vec> @ <vec>\n    sot.graph_break()\n    y = y.float()",
    "for i in range(2):\n    x = x + i\n    sot.graph_break()\n    log.append(<any>)",
    "try:\n    sot.graph_break()\n    a = <int>\nfinally:\n    log.append(a)",
]
EFFECTS = [
    "print(<any>)", "print(<any>, <any>, sep='|', end='.')", "print(x)", "print('%s' % (<any>,), f'{<any>}')",
    "sys.stdout.write('w' + <str>)", "print(<any>, file=sys.stderr)", "logger.warning('%s at %d', <any>, <int>)",
    "logger.info(<str>)", "warnings.warn(<str>)", "print()", "print(x.sum(), flush=True)", "logger.error('%s', x)",
    "sys.stderr.write(<str>)", "logger.debug('never %s', box)", "print(box, [x.shape])",
    "print(f'{<int>:03d} {<float>:.3f} {x.shape}')", "warnings.warn('%d' % (<int>), RuntimeWarning)",
    "print(table, items)",
    "print({<int>: <any>})", "print('a', <int>, <float>)", "warnings.warn('deep', stacklevel=2)",
    "print(Pair(<int>, items))",
    "logger.warning('%(k)s', {'k': <int>})", "warnings.warn(UserWarning(<str>))",
]
LEAVE = [
    "return <any>", "raise <error>(<int>)", "raise <error>", "assert <bool>, <any>",
    "raise <error>(<str>) from Custom(<int>)", "return", "raise <error>(<any>) from None",
]
IN_LOOP = [
    "if <bool>: break", "if <bool>: continue", "break", "continue",
]
IN_GENERATOR = [
    "yield <any>", "got = yield <int>\nlog.append(got)", "yield from <list>", "log.append((yield))",
]
IN_COROUTINE = [
    "log.append(await paused(<any>))", "a = await paused(<int>)", "x = await paused_twice(<vec>)",
    "async with Patient(log) as q:\n    <block>", "async for i in counted(<int> % 4):\n    <loop>",
    "rows = [[v] async for v in counted(3)]",
]
IN_HANDLER = [
    "raise", "raise <error>(<int>) from e", "log.append((type(e).__name__, str(e)))",
    "log.append(type(e.__context__).__name__)", "log.append(e)", "e.add_note('n')", "a = len(e.args)",
    "raise <error>(<int>)", "log.append(sys.exc_info()[0].__name__)", "log.append(e.__traceback__ is None)",
]

NONLOCAL = "nonlocal b, c, items, table, y, z, s, box, log, other, rows, seen, pair, flag, r, t, mat"
COMPOUND = [
    "if <bool>:\n    <block>\nelse:\n    <block>",
    "if <bool>:\n    <block>",
    "for i in range(3):\n    <loop>",
    "for i in <list>[:3]:\n    <loop>\nelse:\n    <block>",
    "while fuel and <bool>:\n    fuel.pop()\n    <loop>",
    "try:\n    <block>\nexcept (ValueError, TypeError, KeyError, IndexError) as e:\n    <handler>",
    "try:\n    <block>\nexcept Custom:\n    <block>\nexcept Exception as e:\n    <handler>\nelse:\n    <block>",
    "try:\n    <block>\nfinally:\n    <block>",
    "for i in range(2):\n    try:\n        <loop>\n    finally:\n        <loop>",
    "with Quiet(log) as q:\n    <block>",
    "with contextlib.suppress(KeyError, ValueError):\n    <block>",
    "with torch.no_grad():\n    <block>",
    "with torch.enable_grad():\n    <block>", "with torch.set_grad_enabled(<bool>):\n    <block>",
    "with torch.inference_mode():\n    <block>", "with torch.autocast('cpu', torch.bfloat16):\n    <block>",
    "with torch.random.fork_rng(devices=[]):\n    torch.manual_seed(<int>)\n    <block>",
    "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    <block>",
    "with contextlib.redirect_stdout(io.StringIO()) as out:\n    <block>\nlog.append(out.getvalue())",
    "with Quiet(log), torch.no_grad(), manager(log, <int>) as c:\n    <block>",
    "with torch.autograd.graph.save_on_cpu():\n    <block>",
    "@torch.no_grad()\ndef quietly(x, a):\n    <body>\n    return x, a\nx, a = quietly(<vec>, <int>)",
    "@dataclasses.dataclass\nclass Made:\n    u: int = <int>\n    v: list = dataclasses.field(default_factory=list)\n"
    "made = Made(<int>)\nmade.v.append(<int>)\nlog.append((made.u, repr(made), made == Made(<int>)))",
    "class Counted(Box):\n    total_ = <int>\n    for v in range(2):\n        total_ += v\n    label = f'{total_}'\n"
    "    def __init_subclass__(cls, **rest):\n        log.append(cls.__name__)\n"
    "class Below(Counted):\n    pass\nlog.append((Below.label, Below.total_))\nbox = Below(<int>)",
    "class Level2(enum.IntEnum):\n    ONE = 1\n    TWO = 2\nlog.append(Level2(2) + <int>)",
    "for name, v in sorted(locals().items()):\n    if name in ('a', 'b'):\n        log.append(v)",
    "with manager(log, <int>) as b:\n    <block>",
    "with Quiet(log), contextlib.ExitStack() as stack:\n    stack.callback(log.append, <any>)\n    <block>",
    "for i, v in enumerate(<list>):\n    <loop>",
    "for s, a in [*table.items()]:\n    <loop>",
    "for v in x:\n    <loop>",
    "for a in items:\n    if not fuel: break\n    fuel.pop()\n    <loop>",
    "for a, b in zip(<list>, items[::-1]):\n    <loop>",
    "for i in gen(<int> % 4, <int>):\n    <loop>",
    "for i in map(lambda v: v + <int>, <list>):\n    <loop>",
    "def inner(a, x):\n"
    "    nonlocal b, c, items, table, y, z, s, box, log, other, rows, seen, pair, flag, r, t, mat\n    <body>\n"
    "    return a, x\na, x = inner(<int>, <vec>)",
    "def inner(p=<int>, *q, k=<any>, **rest):\n    <body>\n    return p, q, k, rest\n"
    "log.append(inner(<int>, <any>, k=<any>, m=<int>))",
    "def make(v=<int>):\n    def add(u):\n        nonlocal v\n        v += u\n        return v\n"
    "    return add\nadd = make(); add(<int>)\nlog.append((add(a), add))",
    "def steps(n, x):\n"
    "    nonlocal b, c, items, table, y, z, s, box, log, other, rows, seen, pair, flag, r, t, mat\n"
    "    for i in range(n):\n        <genloop>\n        yield x\nfor y in steps(2, <vec>):\n    <loop>",
    "def steps(a):\n    nonlocal b, c, items, table, y, z, s, box, log, other, rows, seen, pair, flag, r, t, mat\n"
    "    try:\n        <gen>\n        yield a\n    finally:\n        log.append('closed')\nit = steps(<int>)\n"
    "log.append(next(it, None))\n<block>\nlog.append([*it])",
    "match <any>:\n    case int() as a:\n        <block>\n    case [b, *other]:\n        <block>\n"
    "    case {'k': c, **rest}:\n        <block>\n    case Box(n=b) | Point(_, b):\n        <block>\n"
    "    case _:\n        <block>",
    "class Local(Box):\n    n = <int>\n    def total(self, v):\n        return super().total(v) + <int>\n"
    "box = Local(<int>)",
    "if (z := <scalar>) > <num>:\n    <block>\nelif <bool>:\n    <block>\nelse:\n    <block>",
    "while True:\n    if not fuel: break\n    fuel.pop()\n    <loop>",
]

HOLE = re.compile(r"<([a-z]+)>")
DEPTH = 3       # of nested expressions
NESTING = 3     # of nested blocks


def has_holes(production: str) -> bool:
    return HOLE.search(production) is not None


LEAVES = {kind: [p for p in productions if not has_holes(p)] for kind, productions in EXPRESSIONS.items()}
LEAVES["num"] += ["a"]


class Writer:
    """Writes phrases; ``choose(n)`` is the only source of chance: a number below n, the smaller the simpler."""

    def __init__(self, choose) -> None:
        self.choose = choose
        self.without: tuple[str, ...] = ()      # what the phrase being written must not call

    def pick(self, options: list[str]) -> str:
        return options[self.choose(len(options))]

    def expression(self, kind: str, depth: int = DEPTH) -> str:
        leaves = LEAVES[kind]
        production = self.pick(leaves if leaves and (depth == 0 or self.choose(3) == 0) else EXPRESSIONS[kind])
        if any(name in production for name in self.without):
            production = leaves[0]
        return HOLE.sub(lambda m: self.expression(m[1], max(depth - 1, 0)), production)

    def statement(self, nesting: int, where: frozenset[str]) -> str:
        families = [ASSIGNMENTS, tensors.STATEMENTS, CHANGES, tensors.STATEMENTS, CHANGES, BREAKS, EFFECTS,
                    tensors.LAYOUTS, tensors.DRAWS, tensors.BOUNDED, tensors.READ, tensors.WEIGHTS, tensors.REFUSED,
                    protocols.STATEMENTS, look_alikes.STATEMENTS]
        for name, family in (("loop", IN_LOOP), ("gen", IN_GENERATOR), ("await", IN_COROUTINE),
                             ("handler", IN_HANDLER)):
            families += [family] * (name in where)
        families += [COMPOUND] * (2 * nesting)
        families += [LEAVE] * (self.choose(4) == 3)
        production = self.pick(families[self.choose(len(families))])
        if {"gen", "await"} & where and "stacklevel" in production:     # it would name a frame of SOT's
            production = "pass"
        depth = self.choose(DEPTH)
        return HOLE.sub(lambda m: self.expression(m[1], depth) if m[1] in EXPRESSIONS else m[0], production)

    def block(self, nesting: int, where: frozenset[str] = frozenset(), most: int = 3) -> str:
        """Statements, each followed by a line end."""
        lines = []
        for _ in range(1 + self.choose(most)):
            for line in self.statement(nesting, where).split("\n"):
                indent = line[: len(line) - len(line.lstrip())]
                hole = HOLE.fullmatch(line.strip())
                inside = self.inside(hole[1], nesting - 1, where) if hole else ""
                lines.append(textwrap.indent(inside, indent) if hole else line + "\n")
        return "".join(lines)

    def inside(self, kind: str, nesting: int, where: frozenset[str]) -> str:
        nested = {"block": where - {"handler"}, "loop": (where | {"loop"}) - {"handler"},
                  "handler": where | {"handler"},
                  "body": frozenset(), "gen": frozenset({"gen"}), "genloop": frozenset({"gen", "loop"})}[kind]
        return self.block(nesting, nested)

    def change(self, program: str) -> str:
        """What others change between two calls, often something that the program reads by name."""
        read = [text for text in look_alikes.CHANGES_BETWEEN if look_alikes.NAME.match(text)[0] in program]
        return self.pick(read if read and self.choose(2) else [*CHANGES_BETWEEN])

    def module(self) -> str:
        """What a module has beside its prelude: a helper, a generator, a class, and the program."""
        self.without = ("helper", "gen(", "gen_sum")
        helper = self.block(1, most=2)
        self.without = ()
        suspending = [("def", frozenset({"gen"})), ("async def", frozenset({"await"}))]
        kind, where = self.pick([("def", frozenset())] * 6 + suspending)
        parts = ["yield x\n"] * ("gen" in where)
        parts += [self.block(NESTING, where) for _ in range(1 + self.choose(2))]
        return MODULE.format(kind=kind, helper=textwrap.indent(helper, "    "),
                             program=textwrap.indent("".join(parts), "    "),
                             inputs=tuple(self.pick([*INPUTS]) for _ in range(3)),
                             numbers=self.pick([*NUMBERS]),
                             changes=[self.change("".join(parts)) for _ in range(self.choose(4))],
                             mode=self.pick(["to_static", "to_static", "to_static", "enable"]),
                             double=self.pick(["self.n * 2", "self.n - len(self.items)", "self.items[0]"]),
                             missing=self.pick(["3", "self.n + 1", "getattr(STATE, 'nothing')"]),
                             leave=self.pick(["False", "kind is KeyError", "kind is not None"]))


LOCALS = """    a, b, c, i, s, t, r, items, table, box, flag, fuel, pair, seen, log, rows, other, y, z, mat = (
        n, n + 1, 2, 0, text, 'm', real, start, named, thing, on, [0] * 6, (1, w), {{1, 2}}, [], [[1], [2, 3]],
        [4, 5], x * 2, x.sum(), torch.arange(6.).view(2, 3).mT)
"""
MODULE = """
INPUTS, NUMBERS, MODE = {inputs}, {numbers!r}, {mode!r}
CHANGES = {changes}


class Box(Base):
    @property
    def double(self):
        return {double}
    @double.setter
    def double(self, value):
        self.n = value * 2
    def __getattr__(self, name):
        if name == 'missing':
            return {missing}
        raise AttributeError(name)


class Quiet:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append('enter')
        return self
    def __exit__(self, kind, value, trace):
        self.log.append(kind and kind.__name__)
        return {leave}


STATE = Box(7)


def helper(n, x):
    global COUNT
    w, text, real, start, named, thing, on = x.detach(), 'k', 0.5, [n, 2], {{'k': n}}, STATE, n > 1
""" + LOCALS + """    COUNT += 1
{helper}    return a, x


{kind} program(x, w, n, text, real, start, named, thing, on):
""" + LOCALS + """{program}    return (
        a, b, c, i, s, t, r, items, table, box, flag, pair, seen, log, rows, other, x, y, z, mat)
"""
