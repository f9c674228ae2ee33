"""What is kept between processes: found again, private, whole or not there, and small enough."""
from __future__ import annotations

import errno
import io
import itertools
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import warnings

import pytest
import torch
from compiling import Kernels
from typer.testing import CliRunner

import sot
from sot.backends.triton import cache
from sot.frontend.command_line import commands


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "places", [cache.folder])
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(cache, "own_folder", lambda: tmp_path / "own")
    cache._tell.cache_clear()
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


def unwritable(monkeypatch, fresh):
    """The file system says that it is read-only."""
    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    monkeypatch.setattr(tempfile, "mkstemp", in_the_cache(refuse, tempfile.mkstemp, fresh))
    monkeypatch.setattr(os, "utime", refuse)


def full(monkeypatch, fresh):
    """The disk is full, once a file is written."""
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(handle, mode):
        os.close(handle)
        return Full()
    monkeypatch.setattr(os, "fdopen", lambda handle, mode: (
        open_full if str(fresh) in os.readlink(f"/proc/self/fd/{handle}") else open)(handle, mode))


def no_folder(monkeypatch, fresh):
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_text("a file where the folder should be")


def of_another_user(monkeypatch, fresh):
    (fresh / "kernels").mkdir(parents=True)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(fresh).st_uid + 1)
    monkeypatch.setattr(cache, "belongs_to_user", lambda path: True)


def in_the_cache(patched, plain, fresh):
    return lambda **kwargs: (patched if str(fresh) in str(kwargs.get("dir")) else plain)(**kwargs)


@pytest.mark.parametrize("harm", [unwritable, full, no_folder, of_another_user])
def test_a_folder_that_cannot_be_used_costs_one_warning_and_no_result(harm, monkeypatch, fresh):
    """What is compiled goes to a folder of the process, where this process finds it again."""
    with monkeypatch.context() as patch:
        cache._tell.cache_clear()
        harm(patch, fresh)
        with pytest.warns(RuntimeWarning, match="cannot write to its cache") as told:
            assert [compile_once(), compile_once()] == [False, True]
        assert len([w for w in told if "its cache" in str(w.message)]) == 1
        with patch.context() as strict, warnings.catch_warnings():
            cache._tell.cache_clear()
            warnings.simplefilter("error")
            strict.setattr(cache, "compiler_version", lambda: "another")
            assert not compile_once()
    assert not fresh.is_dir() or not [*(fresh / "kernels").iterdir()]


def test_a_folder_that_is_only_read_is_used(monkeypatch, fresh):
    compile_once()
    unwritable(monkeypatch, fresh)
    assert compile_once()


def test_the_folder_of_a_process_goes_with_it():
    program = ("import os, stat, sys\nfrom sot.support.cache_folder import own_folder\n"
               "child = os.fork()\n"
               "if not child: own_folder(); sys.exit()\n"
               "os.waitpid(child, 0); at = own_folder(); assert at == own_folder()\n"
               "if not os.fork(): sys.exit()\n"
               "os.wait(); print(at, oct(stat.S_IMODE(at.stat().st_mode)))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    path, mode = done.stdout.split()
    assert mode == "0o700" and not os.path.exists(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away and mount a disk")
class TestAsRoot:
    @pytest.mark.parametrize("suffix", [".py", ".json"])
    def test_a_file_of_another_user_is_made_again(self, suffix):
        compile_once()
        path, = cache.folder().glob("*.py")
        os.chown(path.with_suffix(suffix), 12345, 12345)
        assert [compile_once(), compile_once()] == [False, True]

    def test_a_folder_of_another_user_is_not_used(self, fresh):
        compile_once()
        os.chown(fresh / "kernels", 12345, 12345)
        with pytest.warns(RuntimeWarning, match="belongs to another user"):
            assert not compile_once()

    def test_a_disk_that_is_full(self, fresh):
        (fresh / "kernels").mkdir(parents=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(fresh / "kernels")],
                          capture_output=True, timeout=60).returncode != 0:
            pytest.skip("this machine mounts nothing")
        try:
            (fresh / "kernels" / "filler").write_bytes(b" " * 4096)
            with pytest.warns(RuntimeWarning, match="No space left"):
                assert [compile_once(), compile_once()] == [False, True]
        finally:
            subprocess.run(["umount", str(fresh / "kernels")], check=True, timeout=60)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_made_again(mode):
    compile_once()
    path, = cache.folder().glob("*.py")
    path.chmod(mode)
    assert [compile_once(), compile_once()] == [False, True]


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


def test_a_process_scans_the_folder_at_its_first_addition_and_then_now_and_then(monkeypatch):
    scans = []
    monkeypatch.setattr(cache, "additions", itertools.count())
    monkeypatch.setattr(cache, "shrink", lambda: scans.append(len([*cache.folder().glob("key*.py")])))
    for i in range(130):
        cache.add(f"key{i}", "# text", "test")
    assert scans == [1, 65, 129]


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
    listed = CliRunner().invoke(commands.app, ["cache", "ls"])
    assert entry.key in listed.stdout and "1 file, " in listed.stdout
    assert "1 file removed" in CliRunner().invoke(commands.app, ["cache", "clear"]).stdout
    assert list(cache.entries()) == []


@pytest.mark.slow
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
