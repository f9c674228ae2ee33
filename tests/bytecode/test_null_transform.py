"""Decode then encode changes nothing: not the form, not the behaviour.

Form: all code objects of the standard library's sources. Behaviour: pure functions of the standard
library called with the same arguments, and CPython's own test suites run in a process where every
module that is imported goes through the null transform. Generated functions are a file of their own.

SOT_TEST_FULL=1 takes all sources and more test suites instead of a sample.
"""
import copy
import dis
import glob
import importlib.machinery
import importlib.util
import inspect
import io
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import types
import warnings

import pytest

from sot.bytecode import decode, encode
from sot.bytecode.null_transform import null_code, null_transform

FULL = bool(os.environ.get("SOT_TEST_FULL"))
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# ---------------------------------------------------------------------------------------------------
# Form

LIB = os.path.dirname(os.__file__)
SHARDS = 8
HAS_SUITE = os.path.exists(f"{LIB}/test/test_dict.py")     # Debian has it in a package of its own


def sources():
    names = set(sys.stdlib_module_names) - {"antigravity", "this", "idlelib", "turtledemo", "lib2to3"}
    found = glob.glob(f"{LIB}/*.py") + glob.glob(f"{LIB}/test/test_*.py")
    for name in names:
        found += glob.glob(f"{LIB}/{name}/**/*.py", recursive=True)
    found = sorted({path for path in found if "/test/" not in path or "/bad" not in path})
    return found if FULL else found[::8]


def compiled(path):
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")
        try:
            return compile(file.read(), path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None  # test data


def nested(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from nested(const)


def form(code):
    """Everything about the instructions except where handlers stand in their list."""
    decoded = decode(code)
    handlers = [(h.target, h.depth, h.lasti) for h in decoded.handlers]
    return [
        (i.op, type(i.arg), i.arg if i.op != "LOAD_CONST" else id(i.arg), i.target, i.pos,
         i.handler >= 0 and handlers[i.handler])
        for i in decoded.instrs
    ]


SAME = """co_argcount co_posonlyargcount co_kwonlyargcount co_flags co_name co_qualname co_filename
    co_firstlineno co_names co_varnames co_cellvars co_freevars co_nlocals""".split()


# Since 3.14 the compiler finds out which loads need no reference of their own.
OWNING = {dis.opmap[op]: dis.opmap[op.replace("_BORROW", "")] for op in dis.opmap if "_BORROW" in op}


def owning(code):
    return bytes(OWNING.get(op, op) if n % 2 == 0 else op for n, op in enumerate(code.co_code))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_standard_library(shard):
    count = same_bytes = 0
    for path in sources()[shard::SHARDS]:
        module = compiled(path)
        for code in nested(module) if module else ():
            decoded = decode(code)
            new = encode(decoded.instrs, decoded.handlers, like=code)
            assert form(new) == form(code), f"{path}:{code.co_firstlineno} {code.co_qualname}"
            assert all(getattr(new, name) == getattr(code, name) for name in SAME)
            count += 1
            same_bytes += owning(new) == owning(code)
    assert count > (3000 if FULL else 300) / (1 if HAS_SUITE else 3)
    # What differs: LOAD_FAST or LOAD_FAST_CHECK after an inlined comprehension or many variables.
    assert same_bytes == count if sys.version_info < (3, 12) else same_bytes > 0.95 * count


# ---------------------------------------------------------------------------------------------------
# Behaviour: calls


class Timeout(BaseException):
    pass


def alarm(signum, frame):
    raise Timeout


def positions(tb):
    """(function, line, columns) of each frame of a traceback."""
    result = []
    while tb:
        code = tb.tb_frame.f_code
        where = next(itertools.islice(code.co_positions(), tb.tb_lasti // 2, None))
        result.append((code.co_name, *where))
        tb = tb.tb_next
    return result


def outcome(fn, args):
    """What a call does, as something to compare."""
    try:
        result = fn(*args)
        if isinstance(result, types.GeneratorType):
            result = list(itertools.islice(result, 30))
    except Timeout:
        raise
    except BaseException as e:
        parts = "raises", type(e).__name__, str(e), positions(e.__traceback__.tb_next)
    else:
        parts = "returns", type(result).__name__, shown(result)
    return re.sub(r"0x[0-9a-f]+", "0x", repr((parts, [shown(a) for a in args])))


def shown(value):
    try:
        return repr(value)
    except Exception as e:
        return type(e).__name__


POOL = [
    0, 1, 3, -2, 10, 2.5, True, None, "", "abc def", "a/b.c", "10", "%s{x}\n", b"ab", [], [3, 1, 2],
    (1, 2), {"a": 1}, ["x", "yy"], len, 1j,
]  # and no class: CPython 3.11 and 3.12 crash on str.splitlines() once it is specialised

MODULES = """
    string textwrap statistics fractions posixpath ntpath heapq bisect colorsys calendar difflib
    html html.entities json json.encoder json.decoder json.scanner shlex urllib.parse ast tokenize
    base64 copy functools collections reprlib pprint keyword numbers ipaddress fnmatch quopri
    dataclasses enum inspect dis opcode types operator random _pydatetime _pydecimal datetime
    gettext locale email.utils email.quoprimime email.base64mime email.charset email.header
    email._parseaddr email._header_value_parser email.message email.headerregistry mimetypes netrc
    configparser argparse optparse getopt csv plistlib uuid hmac struct contextlib weakref abc
    typing graphlib linecache traceback xml.dom.minidom xml.etree.ElementTree xml.sax.saxutils
    re._parser re._compiler re stringprep sched cmd code codeop pickle pickletools copyreg zipfile
    tarfile gzip bz2 lzma http.cookies http.cookiejar urllib.request wsgiref.util wsgiref.headers
    tomllib._parser tomllib._re _collections_abc _weakrefset _py_abc _compat_pickle _markupbase
    html.parser encodings.idna encodings.punycode token symtable tabnanny timeit unittest.util
    unittest.mock _strptime _pylong _threading_local _osx_support nturl2path platform sysconfig
    secrets imghdr sndhdr chunk aifc sunau wave pyclbr modulefinder rlcompleter trace
    importlib._bootstrap importlib._bootstrap_external importlib.metadata._text
    concurrent.futures._base asyncio.staggered asyncio.format_helpers asyncio.coroutines
""".split()

# These wait, write, run programs, end the process, or change it for the rest of the tests.
UNSAFE = re.compile(
    r"""main|test|system|popen|exec|spawn|kill|exit|install|urlopen|urlretrieve|getproxies|interact
    |remove|unlink|rename|write|save|open|dump|mkdir|rmtree|chdir|basicConfig|shutdown|disable
    |set|reset|register|clear|enable|unregister|simplefilter|filterwarnings|warn|getnode|input|uuid1
    |raw|breakpoint|Config|compile_|purge|invalidate|cache|load|import|reload|now|today|time
    |rand|seed|urandom|token|shuffle|choice|__del__|__exit__|get_platform|uname|_sys|_get_|pip
    |atexit|init|patch|lookup|copy(?:file|tree|mode)|move|extract|make|signal|_lock|acquire|release
    |__subclasshook__|__instancecheck__|print|show|fork|thread|listen|log$|critical|error|debug|info
    |exception|add|handle|_run|walk|getaddr|host|dns|node|_find|find_spec|stat$|exists|isfile|isdir
    |stack|__init_subclass__|__set_name__|new_class|abstract|__setstate__|__reduce|expanduser|freeze|thaw
    """.replace("\n", "").replace(" ", "")
)


def functions(module):
    """The Python functions of a module and of its classes."""
    for name, value in sorted(vars(module).items(), key=lambda item: item[0]):
        if isinstance(value, types.FunctionType):
            yield name, value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for attribute, member in sorted(vars(value).items()):
                member = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(member, types.FunctionType):
                    yield f"{name}.{attribute}", member


def instances(module):
    """Something to call the methods of a module's classes on."""
    makers = {
        "fractions": lambda m: [m.Fraction(3, 4)],
        "_pydecimal": lambda m: [m.Decimal("1.50"), m.Decimal("-3e5"), m.Decimal("NaN"), m.Context()],
        "_pydatetime": lambda m: [m.date(2020, 2, 29), m.datetime(2021, 3, 4, 5, 6, 7, 8),
                                  m.timedelta(3, 4, 5), m.time(1, 2, 3), m.timezone.utc],
        "datetime": lambda m: [m.date(2020, 2, 29), m.timedelta(3, 4, 5)],
        "collections": lambda m: [m.UserDict(a=1), m.UserList([2, 1]), m.UserString("ab"),
                                  m.Counter("aab"), m.ChainMap({"a": 1}, {"b": 2})],
        "ipaddress": lambda m: [m.ip_address("10.1.2.3"), m.ip_network("10.0.0.0/29"),
                                m.ip_address("::1"), m.ip_network("2001:db8::/126")],
        "statistics": lambda m: [m.NormalDist(1, 2)],
        "textwrap": lambda m: [m.TextWrapper(width=5)],
        "string": lambda m: [m.Template("$a ${b}"), m.Formatter()],
        "calendar": lambda m: [m.TextCalendar(), m.HTMLCalendar()],
        "difflib": lambda m: [m.SequenceMatcher(None, "abcd", "bcde"), m.Differ(), m.HtmlDiff()],
        "reprlib": lambda m: [m.Repr()],
        "pprint": lambda m: [m.PrettyPrinter(width=10)],
        "email.message": lambda m: [m.Message(), m.EmailMessage()],
        "_collections_abc": lambda m: [{1, 2}, {"a": 1}, [1, 2]],
        "uuid": lambda m: [m.UUID(int=5)],
        "inspect": lambda m: [m.signature(outcome), m.Parameter("a", m.Parameter.KEYWORD_ONLY)],
        "operator": lambda m: [m.attrgetter("real"), m.itemgetter(0), m.methodcaller("upper")],
        "urllib.parse": lambda m: [m.urlsplit("http://u:p@h:80/p?q#f"), m.urlparse("//h/p;x")],
        "enum": lambda m: [inspect._ParameterKind.KEYWORD_ONLY, m.Flag("F", "A B")(3)],
        "plistlib": lambda m: [m.UID(3)],
        "http.cookies": lambda m: [m.SimpleCookie("a=b"), m.Morsel()],
        "wsgiref.headers": lambda m: [m.Headers([("a", "b")])],
        "configparser": lambda m: [m.ConfigParser()],
        "ast": lambda m: [m.parse("x = 1 + f(y)"), m.NodeVisitor(), m.NodeTransformer()],
        "graphlib": lambda m: [m.TopologicalSorter({1: [2], 2: [3]})],
        "types": lambda m: [m.SimpleNamespace(a=1)],
        "re._parser": lambda m: [m.parse("a(b|c)*"), m.Tokenizer("a+")],
        "shlex": lambda m: [m.shlex("a 'b c'")],
    }
    return makers.get(module.__name__, lambda m: [])(module)


def argument_tuples(fn, things, chance, count):
    code = fn.__code__
    required = code.co_argcount - len(fn.__defaults__ or ())
    for n in range(count):
        size = chance.choice([required, required, min(required + 1, code.co_argcount)])
        args = [chance.choice(POOL) for _ in range(size)]
        if code.co_varnames[:1] == ("self",) and things and args:
            args[0] = things[n % len(things)]
        yield args


def copies(args):
    try:
        return [copy.deepcopy(a) for a in args]
    except Exception:
        return None


def recoded(fn, code):
    new = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    new.__kwdefaults__ = fn.__kwdefaults__
    return new


def compare_calls(name, calls=10):
    """(functions compared, functions that returned something, differences) for a module."""
    module = importlib.import_module(name)
    things, chance = instances(module), random.Random(name)
    compared, returned, different = 0, 0, []
    for label, fn in functions(module):
        if fn.__module__ != module.__name__ or UNSAFE.search(label) or inspect.iscoroutinefunction(fn):
            continue
        # Positions depend on how warm a code object is, so both are fresh.
        old, new, ok = recoded(fn, fn.__code__.replace()), null_transform(fn), 0
        try:
            signal.setitimer(signal.ITIMER_REAL, 2)
            for args in argument_tuples(fn, things, chance, calls):
                one, two, three, four = (copies(args) for _ in range(4))
                if one is None or outcome(fn, three) != outcome(fn, four):
                    continue  # not deterministic
                expected = outcome(old, one)
                ok += expected.startswith("(('returns'")
                if outcome(new, two) != expected:
                    different.append((label, args))
        except Timeout:
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        compared += 1
        returned += ok > 0
    return compared, returned, different


def call_modules(names):
    """For the subprocess: what a stray call does must not reach the process of the tests."""
    signal.signal(signal.SIGALRM, alarm)
    here = os.getcwd()
    total = [0, 0, []]
    for name in names:
        warnings.simplefilter("ignore")
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        compared, returned, different = compare_calls(name)
        total = [total[0] + compared, total[1] + returned, total[2] + [(name, *d) for d in different]]
    report(here, total)


def report(place, data):
    """From the subprocess; by file, since calls print, and close descriptors."""
    with open(os.path.join(place, "report.json"), "w") as file:
        json.dump(data, file, default=repr)


def in_processes(calls, folder, timeout):
    """The reports of `calls`, expressions about the functions of this file, run at the same time."""
    env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}"}
    env["PYTHONHASHSEED"] = "0"
    processes = []
    for number, call in enumerate(calls):
        place = folder / str(number)
        place.mkdir(parents=True)
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", f"from test_null_transform import *; {call}"],
            stdin=subprocess.DEVNULL, stdout=(place / "output").open("wb"), stderr=subprocess.STDOUT, env=env,
            cwd=place,
        )
        processes.append((process, place))
    for process, place in processes:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
        out = (place / "output").read_text(errors="replace")    # no pipe: a process of its own may keep that open
        assert (place / "report.json").exists(), f"no report from process {process.returncode}: {out[-4000:]}"
        yield json.loads((place / "report.json").read_text())


@pytest.mark.slow
def test_calls_of_library_functions(tmp_path, record_property):
    halves = [f"call_modules({MODULES[half::2]})" for half in (0, 1)]
    compared = returned = 0
    for one_compared, one_returned, different in in_processes(halves, tmp_path, 1000):
        assert not different
        compared += one_compared
        returned += one_returned
    record_property("functions compared", compared)
    print(f"{compared} functions compared, {returned} of which returned something")
    assert compared > 2000
    assert returned > 800


# ---------------------------------------------------------------------------------------------------
# Behaviour: CPython's own test suites, with every module that is imported transformed

SUITES = """
    test_textwrap test_string test_fractions test_posixpath test_ntpath test_heapq test_bisect
    test_colorsys test_calendar test_difflib test_html test_htmlparser test_shlex test_urlparse
    test_base64 test_copy test_functools test_collections test_operator test_generators test_genexps
    test_listcomps test_dictcomps test_setcomps test_with test_grammar test_scope test_patma
    test_fstring test_exception_group test_except_star test_raise test_iter test_augassign
    test_unpack test_unpack_ex test_extcall test_keywordonlyarg test_positional_only_arg test_class
    test_property test_decorators test_coroutines test_asyncgen test_contextlib
    test_contextlib_async test_enum test_dataclasses test_typing test_ipaddress test_fnmatch
    test_reprlib test_pprint test_configparser test_csv test_optparse test_getopt test_json
    test_graphlib test_dis test_traceback test_abc test_types test_plistlib test_uuid test_quopri
    test_mimetypes test_netrc test_bool test_userdict test_userlist test_userstring test_slice
    test_range test_enumerate test_yield_from test_sys_settrace test_code test_funcattrs
    test_named_expressions test_minidom test_tomllib test_opcodes test_binop test_compare
    test_richcmp test_contains test_call test_isinstance test_pow test_type_params test_type_aliases
    test_sched test_defaultdict test_linecache test_re test_symtable test_keyword test_bdb
    test_super
""".split()
SLOW_SUITES = """
    test_ordered_dict test_trace test_weakset test_json test_inspect test_statistics test_ast
    test_tokenize test_random test_decimal test_exceptions test_descr test_email test_weakref
    test_datetime test_int test_float test_complex test_list test_tuple test_dict test_set
    test_itertools test_compile test_peepholer test_queue test_unittest test_pickle test_pickletools
    test_codecs test_locale test_deque test_argparse test_gettext test_xml_etree test_sax test_wave
    test_profile test_pyclbr test_string_literals
""".split()

# Tests about things that the null transform, or being loaded through it, does change.
DIFFERS = {
    "test_merge_code_attrs": "equal code objects made apart share no attributes",
    "test_merge_constants": "equal code objects made apart share no constants",
    "test_load_fast_too_many_locals": "LOAD_FAST_CHECK where the compiler gives up",
    "test_skip": "counts the frames of an import, ours among them",
}


def transform_imports():
    """From now on, each module that is loaded from source goes through the null transform."""
    loader = importlib.machinery.SourceFileLoader
    get_code, transformed = loader.get_code, {}

    def get_null_code(self, name):
        code = get_code(self, name)
        if name.startswith(("sot", "bytecode", "test_null_transform")):
            return code
        code = null_code(code)
        transformed.update((id(c), c) for c in nested(code))
        return code

    loader.get_code = get_null_code
    loaded = """ast calendar collections contextlib copy dis enum functools heapq inspect json
        json.encoder json.decoder linecache operator random re re._compiler re._parser reprlib string
        textwrap token tokenize traceback types typing weakref _weakrefset _collections_abc"""
    for name in loaded.split():
        for _, fn in functions(importlib.import_module(name)):
            if fn.__code__.co_filename.startswith(LIB):
                fn.__code__ = null_code(fn.__code__)
                transformed.update((id(c), c) for c in nested(fn.__code__))
    return transformed


def run_suites(names, transform=True):
    """For the subprocess: prints (code objects transformed, executed, tests, failing tests)."""
    here = os.getcwd()
    transformed = transform_imports() if transform else {}
    executed = set()

    def profile(frame, event, arg):
        if event == "call":
            executed.add(id(frame.f_code))

    unittest = importlib.import_module("unittest")
    tests, failing = 0, []
    for name in names:
        if importlib.util.find_spec(f"test.{name}") is None:
            continue
        sys.setprofile(profile if name != "test_dis" else None)  # specialisation stops under it
        suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")
        result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(suite)
        sys.setprofile(None)
        tests += result.testsRun
        for case, trace in result.failures + result.errors:
            method = str(case).split()[0]
            if method not in DIFFERS:
                failing.append((name, str(case), trace[-1500:]))
    sys.setprofile(None)
    done = [len(transformed), len(executed & set(transformed)), tests, failing]
    report(here, done)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_SUITE, reason="CPython's own tests are not installed")
def test_library_test_suites(tmp_path, record_property):
    names = SUITES + (SLOW_SUITES if FULL else [])
    timeout = 1000
    halves = [f"run_suites({names[half::2]})" for half in (0, 1)]
    executed = tests = 0
    for _, one_executed, one_tests, failing in in_processes(halves, tmp_path / "null", timeout):
        if failing:  # perhaps they fail without us, too
            suites = sorted({suite for suite, _, _ in failing})
            plain_run = [f"run_suites({suites}, False)"]
            [plain] = in_processes(plain_run, tmp_path / f"plain{tests}", timeout)
            failing_anyway = {(suite, case) for suite, case, _ in plain[3]}
            failing = [f for f in failing if (f[0], f[1]) not in failing_anyway]
        assert not failing
        executed += one_executed
        tests += one_tests
    record_property("functions executed", executed)
    print(f"{executed} transformed code objects executed by {tests} tests")
    assert executed > 5000
    assert tests > 3000
