"""Inductor's kernels use the processor's vector instructions, without a program that is compiled to find them."""
import os
import subprocess
import sys

import pytest
import torch
from torch._inductor import config, cpp_builder

from sot.torch_compat.inductor import vector_instructions

CAPABILITY = torch.backends.cpu.get_cpu_capability()
vectors = pytest.mark.skipif(not vector_instructions._used_by_torch(), reason="torch uses none or not all of them here")

FIRST_KERNEL = """
import torch, sot
from torch._inductor import cpu_vec_isa

def checked(self, code):
    raise AssertionError("Inductor's own test")

cpu_vec_isa.VecISA.check_build = checked
x = torch.linspace(-2, 2, 1000)

def fn(x):
    return torch.sin(x) * x

result = sot.to_static(fn, backend="inductor")(x)
torch.testing.assert_close(result, fn(x))
print(cpu_vec_isa.pick_vec_isa())
"""


@pytest.mark.slow
@vectors
def test_a_first_kernel(tmp_path):
    if torch.cpu._is_vnni_supported():
        pytest.skip("Inductor also looks for instructions that it tests with a small program")
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST_KERNEL], env=environment, text=True,
                          capture_output=True, check=True, timeout=300)
    assert done.stdout.split() == [CAPABILITY.lower()]
    assert "Vectorized" in "".join(file.read_text() for file in tmp_path.rglob("*.main.cpp"))


@vectors
def test_what_is_known_holds_within_the_context_only():
    with vector_instructions.taken_as_known():
        assert config.cpp.vec_isa_ok is True
    assert config.cpp.vec_isa_ok is None


@vectors
def test_the_users_decision_stays():
    with config.patch({"cpp.vec_isa_ok": False}), vector_instructions.taken_as_known():
        assert config.cpp.vec_isa_ok is False


@vectors
@pytest.mark.parametrize("compiler", ["false", "a-compiler-that-is-not-there"])
def test_a_compiler_that_refuses_them_is_left_to_inductor(monkeypatch, compiler):
    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", lambda: compiler)
    with vector_instructions.taken_as_known():
        assert config.cpp.vec_isa_ok is None


def test_without_a_compiler_inductor_says_so(monkeypatch):
    def none():
        raise RuntimeError("no compiler")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    with vector_instructions.taken_as_known():
        assert config.cpp.vec_isa_ok is None


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX512" if CAPABILITY != "AVX512" else "AVX2"])
def test_instructions_that_torch_does_not_use_are_left_to_inductor(monkeypatch, capability):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    with vector_instructions.taken_as_known():
        assert config.cpp.vec_isa_ok is None
