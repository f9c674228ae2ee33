"""What is compiled against torch on first use: its place in the cache, what goes wrong with it, and doing without."""
from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from sot.torch_compat import build_native, native

pytestmark = pytest.mark.slow

PROGRAM = """
import torch, sot
from sot.torch_compat import native
f = sot.to_static(lambda x, y: (x * y).sum())
a, b = torch.arange(4.), torch.arange(8.)
print([f(a, a).item(), f(b, b).item(), f(a, a.double()).item(), f(a.requires_grad_(), a).requires_grad], native.state())
"""
RESULT = "[14.0, 140.0, 14.0, True] "


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("SOT_NATIVE", raising=False)
    monkeypatch.setattr(native, "modules", {})
    monkeypatch.setattr(native, "reasons", {})
    return tmp_path / "native"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that makes an empty library at once; or what `says` says."""
    file = tmp_path / "compiler"

    def make(script):
        file.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        file.chmod(0o755)
        monkeypatch.setenv("CXX", str(file))
    make('eval "out=\\${$#}"; : > "$out"')
    return make


def run(**env):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, **env},
                          timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def wanted(name="tensors"):
    return native._wanted(name)[0]


def test_another_torch_another_python_another_compiler_is_another_file(cache, compiler, monkeypatch):
    before = wanted()
    assert wanted() == before
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.99")
        assert wanted() != before
    monkeypatch.setenv("CXX", "another")
    assert wanted() != before
    monkeypatch.setattr(sys, "version", "another")
    third = wanted()
    assert third != before
    monkeypatch.setattr(native, "FLAGS", ["-O0"])
    assert wanted() != third


def test_a_torch_that_was_exchanged_for_one_of_the_same_version_is_noticed(cache, compiler, monkeypatch, tmp_path):
    before = wanted()
    fake = tmp_path / "torch"
    (fake / "lib").mkdir(parents=True)
    shutil.copy(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"), fake / "lib")
    monkeypatch.setattr(torch, "__file__", str(fake / "__init__.py"))
    assert wanted() != before


def test_the_first_call_starts_the_compiler_and_does_not_wait(cache, compiler):
    compiler('sleep 3; eval "out=\\${$#}"; : > "$out"')
    start = time.monotonic()
    assert native.module("tensors") is None
    assert time.monotonic() - start < 2.5
    assert "being compiled" in native.reasons["tensors"]
    native.build("tensors")         # waits for who compiles already
    assert [p.name for p in cache.glob("*.so")] == [wanted().name]


def test_the_folder_and_its_files_are_the_users_alone(cache, compiler):
    native.build("tensors")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(wanted().stat().st_mode) == 0o700


@pytest.mark.filterwarnings("ignore:SOT works more slowly")
def test_a_file_that_others_can_write_is_not_loaded(cache, compiler):
    native.build("tensors")
    wanted().chmod(0o722)
    native.modules.clear()
    assert native.module("tensors") is None
    assert "can be written by others" in native.reasons["tensors"]


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
@pytest.mark.filterwarnings("ignore:SOT works more slowly")
def test_a_folder_of_another_user_is_not_used(cache, compiler):
    cache.mkdir(parents=True)
    os.chown(cache, 12345, 12345)
    assert native.module("tensors") is None
    assert "belongs to another user" in native.reasons["tensors"]


def test_a_file_that_was_cut_off_is_made_again(cache):
    native.build("tensors")
    size = wanted().stat().st_size
    wanted().write_bytes(wanted().read_bytes()[:1000])
    assert not build_native.is_done(wanted())
    native.modules.clear()
    native.build("tensors")
    assert wanted().stat().st_size == size


@pytest.mark.filterwarnings("ignore:SOT works more slowly")
def test_what_the_compiler_says_is_told_and_it_is_not_asked_again_at_once(cache, compiler, monkeypatch):
    compiler('echo "x.cpp:1: error: Python.h: No such file" >&2; echo asked >> "$(dirname "$0")/asked"; exit 1')
    for _ in range(2):
        native.build("tensors")
        assert native.module("tensors") is None
        assert "Python.h" in native.reasons["tensors"]
    assert (cache.parent / "asked").read_text() == "asked\n"
    monkeypatch.setattr(build_native, "RETRY", 0)
    native.build("tensors")
    assert (cache.parent / "asked").read_text() == "asked\nasked\n"


@pytest.mark.filterwarnings("ignore:SOT works more slowly")
def test_with_another_search_path_the_compiler_is_asked_again(cache, compiler, monkeypatch):
    compiler('echo asked >> "$(dirname "$0")/asked"; exit 1')
    native.build("tensors")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    native.build("tensors")
    assert (cache.parent / "asked").read_text() == "asked\nasked\n"


def test_without_a_search_path_the_systems_own_is_taken(tmp_path):
    env = {"SOT_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "sot.torch_compat.native"], env=env, check=True, cwd=os.getcwd(), timeout=600)
    assert not [*(tmp_path / "native").glob("*.failed")]


def test_two_processes_at_once_compile_once(cache, compiler):
    compiler('sleep 1; echo asked >> "$(dirname "$0")/asked"; eval "out=\\${$#}"; : > "$out"')
    assert native.module("tensors") is None
    native.modules.clear()
    assert native.module("tensors") is None
    native.build("tensors")
    assert (cache.parent / "asked").read_text() == "asked\n"


def test_switched_off_all_is_the_same_without_a_warning(tmp_path):
    out, err = run(SOT_NATIVE="0", SOT_CACHE_DIR=str(tmp_path))
    assert out.startswith(RESULT + "torch's own") and not err
    assert not (tmp_path / "native").exists()


def test_a_warning_that_is_an_error_does_not_stop_capture(tmp_path):
    out, err = run(CXX="/nowhere/c++", SOT_CACHE_DIR=str(tmp_path))
    assert out.startswith(RESULT)
    time.sleep(1)
    out, err = run(CXX="/nowhere/c++", SOT_CACHE_DIR=str(tmp_path), PYTHONWARNINGS="error::RuntimeWarning")
    assert out.startswith(RESULT) and not err


def test_a_cache_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    out, err = run(SOT_CACHE_DIR=str(tmp_path / "file"))
    assert out.startswith(RESULT) and err.count("SOT works more slowly") == 1


@pytest.mark.parametrize("harm, complaint", [
    (lambda patch: patch.setattr(os, "access", lambda path, mode: mode != os.W_OK), "cannot be written to"),
    (lambda patch: patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0)), "no space"),
])
@pytest.mark.filterwarnings("ignore:SOT works more slowly")
def test_without_room_for_its_result_the_compiler_is_not_started(cache, compiler, monkeypatch, harm, complaint):
    compiler('echo asked >> "$(dirname "$0")/asked"; exit 1')
    harm(monkeypatch)
    assert native.module("tensors") is None
    assert complaint in native.reasons["tensors"]
    assert not (cache.parent / "asked").exists()
