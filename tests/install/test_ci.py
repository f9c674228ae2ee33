"""``.ci/run`` with a ``make`` that only says what it was asked for and prints the closing line of pytest."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]
MAKE = """#!/bin/sh
for word in "$@"; do case "$word" in [a-z]*|.venv*) echo "$word" >> "$ASKED" ;; esac; done
case " $* " in *" $FAILING "*) echo "1 failed, 2 passed, 1 skipped in 0.10s"; exit 2 ;; esac
case " $* " in *" install "*|*" lint "*|*.torch*) ;; *) echo "$CLOSING" ;; esac
"""


@pytest.fixture
def ci(tmp_path):
    """Runs it with the target ``failing`` failing; returns its status, what it printed and the targets in order."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "make").write_text(MAKE)
    (commands / "chromedriver").write_text("#!/bin/sh\n")
    for command in commands.iterdir():
        command.chmod(0o755)
    (tmp_path / "project" / ".ci").mkdir(parents=True)
    shutil.copy(PROJECT / ".ci" / "run", tmp_path / "project" / ".ci" / "run")

    def run(failing="none", closing="3 passed, 1 skipped in 0.10s"):
        environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "ASKED": str(tmp_path / "asked"),
                                    "FAILING": failing, "CLOSING": closing}
        done = subprocess.run([tmp_path / "project" / ".ci" / "run"], env=environment, capture_output=True, text=True,
                              timeout=120)
        return done.returncode, done.stdout + done.stderr, (tmp_path / "asked").read_text().split()

    return run


def test_it_passes_where_all_that_it_runs_does(ci):
    status, printed, asked = ci()
    runs = len([target for target in asked if target.startswith("test")])
    assert status == 0, printed
    assert f"{3 * runs} passed, 0 failed, {runs} skipped" in printed
    assert {"install", "lint", "test", "test-slow", "test-debug"} <= set(asked)


@pytest.mark.parametrize("failing", ["test", "test-slow", "test-debug", "lint"])
def test_what_fails_is_said_after_the_rest_has_run(ci, failing):
    status, printed, asked = ci(failing)
    assert status == 1, printed
    assert ("0 failed" in printed) == (failing == "lint")
    assert asked.index(failing) < len(asked) - 1


def test_a_run_without_a_test_fails(ci):
    assert ci(closing="no tests ran in 0.10s")[0] == 1
