"""Interrupts a capture at every instruction that Python runs for it, each time in a process of its own.

``python tests/support/interrupts.py [points] [KeyboardInterrupt|MemoryError]`` tries that many points, evenly spread
over the captures of a few programs, and prints what was left behind by which.

The process forks at a point; the child raises MemoryError there, or sends itself the signal of Ctrl-C, and looks at
what is left when it has gone through. So each point costs what is left of one capture, and is reached in the same state
each time. The fork is the C library's own: Python, which knows of none, does not renew locks in the child.
"""
from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import _len_torch_dispatch_stack

import sot
from sot import _hook
from sot.backends import BackendError
from sot.driver.translator import Translator
from sot.support.capture_lock import TURNS

SECONDS = 120       # for a child, after which the system ends it
# Python's library holds locks of its own between two instructions, also where no translator is.
LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
X = torch.arange(6.0).reshape(2, 3) / 3


def modes() -> dict[str, object]:
    """What a capture changes while it lasts."""
    c = torch._C
    return {
        "function modes": c._len_torch_function_stack(), "dispatch modes": _len_torch_dispatch_stack(),
        "grad": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"), "dtype": torch.get_default_dtype(),
        "functorch": c._functorch.maybe_current_level(), "hooks": c._autograd._saved_tensors_hooks_is_enabled(),
        "collects": (gc.isenabled(), gc.get_threshold()), "makes": type(torch.ones(2)), "turn": TURNS.is_mine(),
        "callback": _hook.get_callback(), "random": torch.default_generator.get_state().sum().item(),
        "filters": len(sys.modules["warnings"].filters), "out": sys.stdout, "recursion": sys.getrecursionlimit(),
        "patched": [torch.Tensor.__dict__.get(name) for name in ("backward", "__bool__", "item", "register_hook")],
    }


class Points:
    """The points of a capture: every instruction that Python runs between the hook's question and the answer."""

    def __init__(self, visit: Callable[[int], None]) -> None:
        self.visit, self.count = visit, 0
        self.tracer = self.trace    # kept alive: CPython 3.11 calls a borrowed one

    def __enter__(self) -> Points:
        self.answer = answer = Translator.answer

        def traced(*args):
            if sys.gettrace() is not None:      # a capture within a capture
                return answer(*args)
            sys.settrace(self.tracer)
            try:
                return answer(*args)
            finally:
                sys.settrace(None)
        Translator.answer = traced
        return self

    def __exit__(self, *_):
        Translator.answer = self.answer

    def trace(self, frame, event, arg):
        file = frame.f_code.co_filename
        if file.startswith(("<frozen", LIBRARY)) and "site-packages" not in file:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
            self.visit(self.count)
        return self.trace


def capture(program: Callable) -> tuple[Callable, object]:
    translated = sot.to_static(program, backend="eager")
    return translated, translated(X)


def points_of(program: Callable) -> int:
    with Points(lambda n: None) as points:
        capture(program)
    return points.count


def interrupted(program: Callable, exception: type[BaseException], numbers: set[int]) -> dict[int, str]:
    """What is wrong after the exception was raised at each of these points; nothing, as a rule."""
    before, want, failed, children = modes(), program(X), {}, [0]
    fork = ctypes.PyDLL(None).fork
    read, write = os.pipe()

    def visit(number):
        if number not in numbers:
            return
        if (child := fork()) == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            numbers.clear()
            children.clear()
            sys.settrace(None)
            if exception is not KeyboardInterrupt:
                raise exception
            signal.raise_signal(signal.SIGINT)
            return
        _, status = os.waitpid(child, 0)
        if status:
            said = os.read(read, 1 << 16).decode() if os.WIFEXITED(status) else f"ended by {status}"
            failed[number] = said

    torch.set_num_threads(1)        # a child has no others
    collects = gc.isenabled()
    gc.disable()        # finalizers of other tests' objects would have their turn at any point
    before["collects"] = False
    try:
        with Points(visit):
            try:
                translated, got = capture(program)
            except (exception, BackendError):
                if children:
                    raise
                got = want
        if not children:
            raise SystemExit
        torch.testing.assert_close(got, want)
    except BaseException as e:
        if children:
            raise
        message = left_behind(program, before, want, None if isinstance(e, SystemExit) else e)
        os.write(write, message.encode()[:60000])
        os._exit(bool(message))
    finally:
        if children:
            os.close(read)
            os.close(write)
            if collects:
                gc.enable()
    return failed


def left_behind(program, before, want, raised) -> str:
    """In the child: what is not as it was, and whether the program can be captured as ever."""
    sys.settrace(None)
    try:
        if raised is not None:
            return "".join(traceback.format_exception(raised))
        after = modes()
        if different := {name: (before[name], after[name]) for name in before if before[name] != after[name]}:
            return repr(different)
        for again in (program, lambda x: program(x) + 0):
            translated, got = capture(again)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(translated(X), want)
        last = translated.captures[-1]
        return "" if last.stopped is None and not last.fallback else f"not captured any more: {last.stopped}"
    except BaseException as e:  # noqa: BLE001 - to be shown
        return "".join(traceback.format_exception(e))


# ---- programs ---------------------------------------------------------------------------------------------------
def plain(x):
    with torch.no_grad():
        y = torch.sin(x) + 1
    return y.sum() * x


def branching(x, n=3):
    items = []
    for i in range(n):
        items.append(x * i)
        x = x + len(items)
    if x.shape[0] > 1:
        x = torch.relu(x)
    return torch.stack(items).sum(0) + x.clone().add_(1)


LAYER = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.LayerNorm(3))


def layers(x):
    return LAYER(x) * torch.rand_like(x).zero_().add(1)


PROGRAMS = (plain, branching, layers)


def spread(program: Callable, points: int) -> set[int]:
    """That many of a program's points, after everything that is imported and cached on first use."""
    for _ in range(2):
        capture(lambda x: program(x) + 1)
    count = points_of(program)
    return {1 + i * count // points for i in range(min(points, count))}


def main(points: int = 300, name: str = "KeyboardInterrupt") -> int:
    exception = {"KeyboardInterrupt": KeyboardInterrupt, "MemoryError": MemoryError}[name]
    wrong = 0
    for program in PROGRAMS:
        numbers = spread(program, points // len(PROGRAMS))
        print(f"{program.__name__}: {len(numbers)} points of {points_of(program)}", flush=True)
        for number, said in interrupted(program, exception, set(numbers)).items():
            wrong += 1
            print(f"{program.__name__}, {name} at {number}: {said}", flush=True)
    print(f"{wrong} left something behind")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*(int(a) if a.isdigit() else a for a in sys.argv[1:])))
