"""What is kept between processes: found again, private, whole or not there, and small enough."""
from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading

import pytest
import torch
from compiling import Kernels
from typer.testing import CliRunner

import sot
from sot.backends.triton import cache
from sot.frontend import cli


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path / "cache"))
    sot.reset()
    yield tmp_path / "cache"
    sot.reset()


def doubled(x):
    return (x * 2).sin()


def compile_once() -> bool:
    """Was the module found?"""
    sot.reset()
    made = Kernels()
    x = torch.arange(6.0)
    torch.testing.assert_close(sot.to_static(doubled, backend=made)(x), doubled(x))
    return made.made[0].found


def test_a_module_is_found_again():
    assert [compile_once(), compile_once()] == [False, True]
    entry, = cache.entries()
    assert entry.title == "inference"


@pytest.mark.slow
def test_another_process_finds_it():
    program = ("import sys; sys.path[:0] = ['tests/support']; import torch, sot; from compiling import Kernels\n"
               "import os; os.environ['SOT_CACHE_DIR'] = sys.argv[1]; made = Kernels()\n"
               "def f(x): return x.cos() + 1\n"
               "sot.to_static(f, backend=made)(torch.ones(3)); print(made.made[0].found)")
    found = [subprocess.run([sys.executable, "-c", program, os.environ["SOT_CACHE_DIR"]], capture_output=True,
                            text=True, check=True, timeout=300).stdout.strip() for _ in range(2)]
    assert found == ["False", "True"]


@pytest.mark.parametrize("harm", [
    lambda path: path.write_text("def run(inputs, constants): return [inputs[0]]\n"),
    lambda path: path.write_text(path.read_text()[:40]),
    lambda path: path.with_suffix(".json").write_text("{"),
    lambda path: path.with_suffix(".json").unlink(),
    lambda path: path.with_suffix(".json").write_text(json.dumps({"sha256": 3})),
], ids=["changed", "cut short", "no JSON", "no facts", "other facts"])
def test_what_is_damaged_is_made_again(harm):
    compile_once()
    path, = cache.folder().glob("*.py")
    harm(path)
    assert [compile_once(), compile_once()] == [False, True]


def test_the_folder_is_the_users_alone(fresh):
    compile_once()
    assert stat.S_IMODE(os.stat(cache.folder()).st_mode) == 0o700
    cache.folder().chmod(0o755)
    assert stat.S_IMODE(os.stat(cache.folder()).st_mode) == 0o700


def test_the_code_of_the_compiler_is_part_of_the_key(monkeypatch):
    compile_once()
    monkeypatch.setattr(cache, "compiler_version", lambda: "another")
    assert not compile_once()


def test_the_least_recently_used_go_first():
    for i in range(4):
        path = cache.add(f"key{i}", "#" * 100, "test")
        os.utime(path, (i + 1, i + 1))
    cache.shrink(250)
    assert [e.key for e in cache.entries()] == ["key3", "key2"]
    assert sorted(p.name for p in cache.folder().glob("key*")) == ["key2.json", "key2.py", "key3.json", "key3.py"]


def test_writers_at_the_same_time_leave_a_whole_module():
    texts = [f"# {i}\n" * 2000 for i in range(8)]
    threads = [threading.Thread(target=cache.add, args=("key", text, "test")) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert (cache.folder() / "key.py").read_text() in texts
    assert not list(cache.folder().glob("*.new"))


def test_the_command_line_lists_and_clears():
    compile_once()
    entry, = cache.entries()
    listed = CliRunner().invoke(cli.app, ["cache", "ls"])
    assert entry.key in listed.stdout and "1 file, " in listed.stdout
    assert "1 file removed" in CliRunner().invoke(cli.app, ["cache", "clear"]).stdout
    assert list(cache.entries()) == []


def test_processes_at_the_same_time_leave_whole_files():
    program = ("import sys\nfrom contextlib import suppress\nfrom sot.backends.triton import cache\n"
               "for i in range(60):\n"
               "    cache.add(f'key{i % 5}', sys.argv[1] * (1000 + i), sys.argv[1], '.cubin')\n"
               "    path = cache.find(f'key{i % 3}', '.cubin')\n"
               "    with suppress(FileNotFoundError):       # another process has removed it since\n"
               "        assert path is None or set(path.read_text()) <= {'a', 'b', 'c'}\n"
               "    cache.shrink(4000 if i % 7 else cache.LIMIT)\n")
    running = [subprocess.Popen([sys.executable, "-c", program, letter], stderr=subprocess.PIPE, text=True)
               for letter in "abc"]
    for process in running:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    whole = [path for path in cache.folder().glob("*.cubin") if cache.find(path.stem, ".cubin")]
    assert all(len(set(path.read_text())) == 1 for path in whole)
    assert not list(cache.folder().glob("*.new"))
