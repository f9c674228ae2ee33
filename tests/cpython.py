"""CPython's own tests, every test function translated: python tests/cpython.py [test_dict ...]

Each module runs in a process of its own, plainly and translated. A test that passes plainly and fails translated is
a bug of ours, and the exit status says so. The table counts the captures too: whole, broken, left to Python.
"""
from __future__ import annotations

import argparse
import importlib
import json
import signal
import subprocess
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator

MODULES = """test_generators test_dict test_list test_set test_tuple test_exceptions test_contextlib test_functools
test_itertools test_collections test_dataclasses test_enum test_patma test_unpack test_named_expressions test_scope
test_super test_descr test_grammar test_with test_raise""".split()
LIFETIME = "counts on when an object dies: translated code may hold it a little longer"
LAYOUT = "measures CPython's memory layout or reuse of objects"
DISTURBS = "disturbs the interpreter in which the translator runs too"
EXPECTED = {
    "test_free_after_iterating": LIFETIME, "test_oob_indexing_dictiter_iternextitem": LIFETIME,
    "test_frame_resurrect": LIFETIME, "test_refcycle": LIFETIME, "test_weakref": LIFETIME, "testLeaks": LIFETIME,
    "testExceptionCleanupState": LIFETIME, "test_3114": LIFETIME, "test_memory_error_cleanup": LIFETIME,
    "test_recursion_error_cleanup": LIFETIME, "test_lru_cache_weakrefable": LIFETIME,
    "test_delete_hook": LIFETIME, "test_slots": LIFETIME, "test_remove_subclass": LIFETIME,
    "test_3611": LIFETIME, "test_subtype_resurrection": LIFETIME,
    "test_splittable_popitem": LAYOUT, "test_combinations_sizeof": LAYOUT, "test_permutations_sizeof": LAYOUT,
    "test_combinations_with_replacement_sizeof": LAYOUT, "test_product_sizeof": LAYOUT,
    "test_combinations_tuple_reuse": LAYOUT, "test_combinations_with_replacement_tuple_reuse": LAYOUT,
    "test_permutations_tuple_reuse": LAYOUT, "test_product_tuple_reuse": LAYOUT, "test_subclasses": LAYOUT,
    "test_bug7466": "a hundred gc.collect(), each of which walks all of torch",
    "test_str_nonstr": "asks whether two equal strings are one object",
    **dict.fromkeys(["test_lineno_after_other_except", "test_lineno_after_raise_in_except",
                     "test_lineno_after_raise_in_with_exit", "test_lineno_after_raise_simple",
                     "test_lineno_after_with", "test_lineno_in_finally_except", "test_lineno_in_finally_normal",
                     "test_lineno_in_named_except", "test_lineno_in_try", "test_missing_lineno_shows_as_none",
                     "test_exit_exception_traceback"],
                    "compares a whole traceback: ours has the frames of emitted code too"),
    "test_lru_reentrancy_with_len": DISTURBS, "test_recursion_in_except_handler": DISTURBS,
    "test_recursion_normalizing_with_no_memory": DISTURBS, "test_file_fault": DISTURBS,
}
SECONDS = 600
SECONDS_OF_A_TEST = 20


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def run(name: str, translate: bool) -> dict:
    """The outcome of each test of a module, and how the captures went."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_slow)
    module = importlib.import_module(f"test.{name}")
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    captures: Counter = Counter()
    outcomes, internal = {}, []
    for case in cases(suite):
        method = getattr(type(case), case._testMethodName, None)
        if translate and case._testMethodName in EXPECTED:
            outcomes[case.id()] = "expected"
            continue
        if translate and isinstance(method, types.FunctionType):
            translated = translator().StaticFunction(method, translator().Settings("eager"))
            setattr(case, case._testMethodName, types.MethodType(translated, case))
        result = unittest.TestResult()
        signal.alarm(SECONDS_OF_A_TEST)
        start = time.perf_counter()
        case.run(result)
        signal.alarm(0)
        problems = result.errors + result.failures
        outcomes[case.id()] = problems[0][1].strip().splitlines()[-1][:150] if problems else "ok"
        if time.perf_counter() - start > SECONDS_OF_A_TEST:
            outcomes[case.id()] = "too slow"
        if translate and isinstance(method, types.FunctionType):
            for capture in translated.captures:
                captures[kind_of(capture)] += 1
                if kind_of(capture) == "internal error":
                    internal.append(str(capture.stopped))
            translator().reset()
    return {"outcomes": outcomes, "captures": captures, "internal": sorted(set(internal))}


def too_slow(*_: object) -> None:
    raise TimeoutError(f"no end in {SECONDS_OF_A_TEST} s")


def translator() -> types.SimpleNamespace:
    import sot
    from sot import translate
    from sot.api import Settings, StaticFunction

    translate.is_users = lambda code, module: module.startswith("test.")    # the standard library is not, otherwise
    return types.SimpleNamespace(StaticFunction=StaticFunction, Settings=Settings, reset=sot.reset)


def kind_of(capture) -> str:
    if capture.stopped is None:
        return "whole"
    if capture.stopped.reason.name == "INTERNAL":
        return "internal error"
    return "left to Python" if capture.fallback else "broken"


def in_a_process(name: str, translate: bool) -> dict:
    command = [sys.executable, "-W", "ignore", __file__, "--child", name, str(int(translate))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return {"outcomes": {}, "captures": {}, "died": f"no end in {SECONDS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return {"outcomes": {}, "captures": {}, "died": f"exit {done.returncode}: {done.stderr.strip()[-200:]}"}
    return json.loads(lines[-1][7:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=MODULES)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print("\nRESULT " + json.dumps(run(options.names[0], options.names[1] == "1")))
        return 0
    bad = 0
    for name in options.names:
        plain, ours = in_a_process(name, False), in_a_process(name, True)
        passing = [t for t, outcome in plain["outcomes"].items() if outcome == "ok"]
        failing = {t: ours["outcomes"].get(t, "not run") for t in passing
                   if ours["outcomes"].get(t) not in ("ok", "expected")}
        bad += len(failing) + ("died" in ours)
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(ours["captures"].items()))
        print(f"{name}: {len(passing)} pass plainly, {len(failing)} of them fail translated; {counts}"
              + (f"; {ours['died']}" if "died" in ours else ""), flush=True)
        for line in ours.get("internal", ()):
            print(f"    internal: {line}", flush=True)
        for test, outcome in [*failing.items()][:40]:
            if "died" not in ours:
                print(f"    {test}: {outcome}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
