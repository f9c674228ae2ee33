"""The hook leaves a program that does no tensor work for long, and is back at the next tensor.

Programs of their own: how long the hook waits depends on what has run before.
"""
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parents[1] / "support"
PRELUDE = """
    import threading, torch
    import sot
    from hooked import NET, is_installed
    from sot import _hook
    exec(NET)

    X = torch.ones(2, 3)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)
"""


def run(program, **environment):
    text = textwrap.dedent(PRELUDE) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, env={
        **os.environ, "SOT_ENABLE": "1", "SOT_BUDGET": "0.9,1000", "PYTHONPATH": str(SUPPORT), **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_leaves_and_comes_back():
    """With the next tensor, of whichever thread, and where somebody sets a callback; not where nobody wants it."""
    assert run("""
        def rest():
            for _ in range(8):      # the wait is longer each time
                if is_installed():
                    fib(27)
            print(is_installed(), end="->")
        def thread():
            made = threading.Thread(target=lambda: X + 1)
            made.start(), made.join()

        print(is_installed())
        for wake in (lambda: X + 1, thread, lambda: sot.to_static(lambda x: x + 1)(X), sot.enable):
            rest(), wake(), print(is_installed())
        rest(), sot.disable(), _hook.set_default(None), X + 1, print(is_installed())
    """) == ["True", *["False->True"] * 4, "False->False"]


@pytest.mark.slow
def test_work_after_a_rest_is_captured():
    """Each rest makes it wait twice as long for the next. What torch.compile installs meanwhile stays on top, and takes
    itself away."""
    times, *rest = run("""
        times = 0
        for _ in range(200):
            fib(19)
            times += not is_installed()
            X + 1
        print(times)
        compiled = torch.compile(lambda x: (x + 1).sin(), backend="eager")
        net = Net()
        with torch.no_grad():
            fib(26)
            print(is_installed())
            for _ in range(2):
                assert torch.equal(compiled(X), (X + 1).sin())
            want = net(X)
            assert all(torch.equal(net(X), want) for _ in range(300))
        print(is_installed(), bool(_hook.get_entries(Net.forward.__code__)))
    """)
    assert int(times) <= 3 and rest == ["False", "True", "True"]
