"""CPython's own tests, every test function translated: python tests/support/cpython.py [--jobs 2] [test_dict ...]

Each module runs in processes of its own, plainly and translated. A test that passes plainly and fails translated is
a bug of ours, and the exit status says so. The table counts the captures too: whole, broken, left to Python.
"""
from __future__ import annotations

import argparse
import dataclasses
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
from concurrent.futures import ThreadPoolExecutor

MODULES = """test_generators test_dict test_list test_set test_tuple test_exceptions test_contextlib test_functools
test_itertools test_collections test_dataclasses test_enum test_patma test_unpack test_named_expressions test_scope
test_super test_descr test_grammar test_with test_raise""".split()
QUICK = """test_generators test_list test_contextlib test_unpack test_named_expressions test_scope test_super
test_with test_raise""".split()     # of these `make test` runs all; `make cpython` runs every module

EXPECTED = {
    f"{module}.test_repr_deep": "since 3.12: the limit of recursion in C, which symbolic lists do not have"
    for module in ("test_dict", "test_list")} if sys.version_info >= (3, 12) else {}
SECONDS = 1800
SECONDS_OF_A_TEST = 60      # of the processor's time


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def run(name: str, translate: bool) -> dict:
    """The outcome of each test of a module, and how the captures went."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, too_slow)
    module = importlib.import_module(f"test.{name}")
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    captures: Counter = Counter()
    outcomes, internal = {}, []
    for case in cases(suite):
        method = getattr(type(case), case._testMethodName, None)
        if translate and f"{name}.{case._testMethodName}" in EXPECTED:
            outcomes[case.id()] = "expected"
            continue
        if translate and isinstance(method, types.FunctionType):
            translated = translator().StaticFunction(method, translator().Settings("eager"))
            setattr(case, case._testMethodName, types.MethodType(translated, case))
        result = unittest.TestResult()
        signal.setitimer(signal.ITIMER_PROF, SECONDS_OF_A_TEST)
        start = time.process_time()
        case.run(result)
        signal.setitimer(signal.ITIMER_PROF, 0)
        problems = result.errors + result.failures
        outcomes[case.id()] = problems[0][1].strip().splitlines()[-1][:150] if problems else "ok"
        if time.process_time() - start > SECONDS_OF_A_TEST:
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
    from sot.driver import scope
    from sot.frontend.api import Settings, StaticFunction

    scope.is_users = lambda code, module: module.startswith("test.")    # the standard library is not, otherwise
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


@dataclasses.dataclass
class Comparison:
    """How a module fares plainly and translated."""

    name: str
    plain: dict
    translated: dict

    @property
    def passing(self) -> list[str]:
        return [test for test, outcome in self.plain["outcomes"].items() if outcome == "ok"]

    @property
    def expected(self) -> int:
        return sum(self.translated["outcomes"].get(test) == "expected" for test in self.passing)

    @property
    def failing(self) -> dict[str, str]:
        """The tests that pass plainly and fail translated, and how."""
        outcomes = self.translated["outcomes"]
        return {test: outcomes.get(test, self.translated.get("died", "not run")) for test in self.passing
                if outcomes.get(test) not in ("ok", "expected")}

    def row(self) -> str:
        counts = self.translated["captures"]
        kinds = (counts.get(kind, 0) for kind in KINDS)
        return f"| {self.name} | {len(self.passing)} | {len(self.failing)} | {self.expected} | " + " | ".join(
            map(str, kinds)) + " |"


KINDS = ("whole", "broken", "left to Python", "internal error")


def compare(name: str) -> Comparison:
    return Comparison(name, in_a_process(name, False), in_a_process(name, True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=MODULES)
    parser.add_argument("--jobs", type=int, default=2, help="how many modules at a time")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print("\nRESULT " + json.dumps(run(options.names[0], options.names[1] == "1")))
        return 0
    print("| module | passes plainly | fails translated | expected to differ | " + " | ".join(KINDS) + " |")
    print("| --- " * (4 + len(KINDS)) + "|")
    bad = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(compare, options.names):
            print(found.row(), flush=True)
            bad += [f"{test}: {outcome}" for test, outcome in found.failing.items()]
            bad += [f"{found.name}: internal: {line}" for line in found.translated.get("internal", ())]
    print("", *bad, sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
