"""The commands and the blocks that the pages show work as they stand there. Python blocks of pages are run by
tests/frontend/test_docs.py, and the examples by tests/frontend/test_examples.py.

``COMMANDS`` and ``BLOCKS`` are the rules: what is done with each command and each kind of block. A command or a block
without a rule is a failure, so nothing that a page shows is left out by accident.
"""
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("**/*.md")
                                     if path.name not in ("changelog.md", "internals.md"))]     # they include others
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
FENCE = re.compile(r"^```(\S+)[^\n]*\n(.*?)^```$", re.M | re.S)

# ---- commands -------------------------------------------------------------------------------------------------
PROGRAM = """
import torch

factor = 3


def f(x):
    return x.sin() * factor


example_inputs = (torch.ones(3),)
for _ in range(3):
    f(torch.ones(3))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of the pages: train.py, program.py, file.py, before.json and after.json."""
    folder = tmp_path_factory.mktemp("commands")
    for name in ("train.py", "program.py", "file.py"):
        (folder / name).write_text(PROGRAM)
    for name in ("before", "after"):
        assert run(folder, f"python -m sot run --report {name}.json train.py").returncode == 0
    return folder


def run(folder, command):
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)})


def is_run(command, folder):
    done = run(folder, command)
    assert done.returncode == 0, done.stdout + done.stderr
    if "SOT_REPORT" in command:
        assert (folder / "out.html").exists()
    if "--why" in command:
        assert "factor" in done.stdout


def is_tried(command, folder):
    """pip builds the metadata and says what it would install. tests/install/test_install.py installs."""
    rest = command.removeprefix("pip install ")
    done = run(ROOT, f"{sys.executable} -m pip install --dry-run --no-deps --no-build-isolation {rest}")
    assert done.returncode == 0 and "Would install sot" in done.stdout, done.stdout + done.stderr


def is_run_by_test_install(command, folder):
    """Not run again: tests/install/test_install.py builds a wheel and uses it."""


def is_a_target(command, folder):
    """``make`` makes environments of its own; that it knows the target is checked."""
    target = command.split()[1]
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.M), target


def is_a_file(command, folder):
    """Examples are run by ``make examples``, benchmarks by hand: they take minutes."""
    assert (ROOT / command.split()[1]).exists()


def changes_the_machine(command, folder):
    """Not run: it installs packages of the system, or changes the settings of its user."""


COMMANDS = {
    r"(SOT_\w+=\S+ )*python (-X \w+ )?(train|program|file)\.py.*": is_run,
    r"(SOT_\w+=\S+ )*python -m sot( .*)?": is_run,
    r"python -c .*": is_run,
    r"python -m sot\.backends\.triton\.offline": is_run,
    r"python (examples|benchmarks)/.*": is_a_file,
    r"pip install .*": is_tried,
    r"pip wheel \.": is_run_by_test_install,
    r"make .*": is_a_target,
    r"(apt|dnf|git config) .*": changes_the_machine,
}
FIRST_WORDS = r"(?:SOT_[A-Z_]+=[^ `]+ )*(?:python|pip|make|apt|dnf|git)"


def commands():
    """The commands of indented lines and of code within sentences."""
    found = set()
    for text in TEXTS.values():
        prose = FENCE.sub("", text)
        for command in re.findall(rf"^    ({FIRST_WORDS} .*)$", prose, re.M) + re.findall(
                rf"`({FIRST_WORDS} [^`]*)`", prose):
            found.add(re.sub(r"\s+# .*", "", command).strip())
    return sorted(found)


def test_the_pages_show_commands():
    assert {command.split()[3] for command in commands() if command.startswith("python -m sot ")} >= {
        "run", "explain", "check", "diff", "cache"}


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_pages_works(command, folder):
    check = next((check for pattern, check in COMMANDS.items() if re.fullmatch(pattern, command)), None)
    assert check is not None, f"no rule for {command}"
    check(command, folder)


# ---- blocks ---------------------------------------------------------------------------------------------------
NEEDS = re.compile(r"# ((?:[A-Z_]+=\S+ )+)python \w+\.py\n")    # the first line of Python that is run as a program


def is_run_by_test_docs(text, folder):
    compile(text, "<block>", "exec")
    if found := NEEDS.match(text):
        (folder / "block.py").write_text(text)
        done = run(folder, f"{found[1]} {sys.executable} block.py")
        assert done.returncode == 0, done.stderr
        assert re.search(r"#\s+(.*)$", text.partition("\n")[2], re.M)[1] in done.stdout


def is_an_entry_point(text, folder):
    """The table of a package makes a backend that ``to_static`` finds by its name."""
    (group, points), = tomllib.loads(text)["project"]["entry-points"].items()
    (name, target), = points.items()
    module, _, function = target.partition(":")
    (folder / f"{module}.py").write_text(f"def {function}(graph, inputs):\n    return graph.forward\n")
    (folder / f"{module}-1.dist-info").mkdir()
    (folder / f"{module}-1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (folder / f"{module}-1.dist-info" / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    program = ("import sot, torch\n"     # in a process of its own, because torch lists backends once
               f"f = sot.to_static(lambda x: x + 1, backend={name!r})\n"
               "assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0)) and len(f.graphs) == 1")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300,
                   env={**os.environ, "PYTHONPATH": str(folder)})


def is_built(text, folder):
    """Directives of Sphinx: ``test_the_pages_build_without_a_warning`` builds them, and included examples are run."""


BLOCKS = {
    "python": is_run_by_test_docs,
    "toml": is_an_entry_point,
    "{eval-rst}": is_built,
    "{literalinclude}": is_built,
    "{toctree}": is_built,
}
ALL_BLOCKS = [(page, kind, text) for page, whole in TEXTS.items() for kind, text in FENCE.findall(whole)]


def test_every_kind_of_block_has_a_rule():
    assert {kind for _, kind, _ in ALL_BLOCKS} == set(BLOCKS)
    assert sum(text.count("```") for text in TEXTS.values()) == 2 * len(ALL_BLOCKS)


@pytest.mark.parametrize(("page", "kind", "text"), ALL_BLOCKS, ids=lambda value: value if len(value) < 40 else "")
def test_a_block_of_the_pages_works(page, kind, text, tmp_path):
    BLOCKS[kind](text, tmp_path)


def test_indented_text_is_a_command_an_output_or_a_picture():
    for page, whole in TEXTS.items():
        for block in re.findall(r"(?:^    .*\n|^\n)+", FENCE.sub("", whole), re.M):
            if lines := [line for line in block.splitlines() if line.strip()]:
                before = whole[:whole.index(lines[0])].rstrip()
                assert (all(re.match(rf"    {FIRST_WORDS} ", line) for line in lines)
                        or before.endswith("What it prints:") or "▶" in block), (page, block)
