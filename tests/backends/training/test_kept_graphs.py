"""torch's caches of compiled graphs take the graphs of this package, so that a second process compiles nothing."""
from __future__ import annotations

import gc
import json
import marshal
import os
import subprocess
import sys

import pytest
import torch
from harness import Programs
from torch._functorch._aot_autograd import autograd_cache

import sot
from sot.backends import lookup_backend
from sot.support.collector import import_large, paused_collector
from sot.torch_compat.global_state import Before
from sot.torch_compat.inductor.own_functions import caching_own_functions, checksum_of

programs = Programs()
X, HALF = torch.linspace(-1, 1, 8), torch.ones(8, dtype=torch.bfloat16)


class Asking:
    """A backend that asks AOTAutograd's cache about each node."""

    def __init__(self):
        self.nodes, self.inner = 0, lookup_backend("aot_eager")

    def __call__(self, gm, inputs):
        with caching_own_functions():
            for node in gm.graph.nodes:
                autograd_cache.check_node_safe(node)
                self.nodes += 1
        return self.inner(gm, inputs)


def trained(model, optimizer):
    def step(v):
        optimizer.zero_grad()
        loss = (model(X) * v).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


@programs
def a_training_step(v):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    return trained(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))(v)


@programs
def memory_filled_with_a_number(v):
    return torch.full((3,), v) + 1, X.new_full((8,), v) * X


@programs
def an_operand_scaled_by_a_number(v):
    return X.clone().add_(HALF / 3, alpha=-v), torch.addcmul(X, X, X, value=v)


@programs.each
def test_the_cache_accepts_each_node(fn):
    backend = Asking()
    translated = sot.to_static(fn, backend=backend)
    for value in (0.3, 0.2, 0.1):
        torch.testing.assert_close(translated(value), fn(value))
    assert backend.nodes


@pytest.mark.slow
def test_the_cache_accepts_a_step_of_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    backend = Asking()
    step = sot.to_static(trained(model, torch.optim.AdamW(model.parameters())), backend=backend, full_graph=True)
    for _ in range(3):
        step(1.0)
    assert backend.nodes > 10


def written_with_parts(x):
    return sum(x + i for i in range(3)), x in {"some", "texts"}


def test_a_checksum_of_code_is_the_same_in_each_process():
    """torch's caches have it in their keys. The repr() of nested code has an address."""
    code = written_with_parts.__code__
    loaded = marshal.loads(marshal.dumps(code))
    texts = [next(c for c in each.co_consts if isinstance(c, frozenset)) for each in (code, loaded)]
    assert repr(code.co_consts) != repr(loaded.co_consts) and texts[0] == texts[1]
    assert checksum_of(code) == checksum_of(loaded) != checksum_of(code.replace(co_names=("other",)))


STEP = """
import json, sot, torch
from torch._dynamo.utils import counters
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
losses = []
for call in (step, step, sot.compile(step, backend="inductor")) * 2:
    losses.append(call(torch.ones(2, 4)).item())
print(json.dumps([losses, counters["aot_autograd"]]))
"""


@pytest.mark.slow
def test_a_second_process_takes_a_training_step_from_the_cache(tmp_path):
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    runs = [json.loads(subprocess.run([sys.executable, "-W", "ignore", "-c", STEP], text=True, check=True, timeout=300,
                                      env={**env, "SOT_CACHE_DIR": str(tmp_path / own)},    # that would come first
                                      stdout=subprocess.PIPE).stdout) for own in ("one", "two")]
    (first, made), (second, found) = runs
    assert first == second == sorted(first, reverse=True)
    assert made["autograd_cache_saved"] and found["autograd_cache_hit"] and "autograd_cache_miss" not in found


def test_a_capture_beside_an_import_leaves_the_collector_on():
    """Another thread's import had paused it when the capture began, and has ended since."""
    before = Before()
    with paused_collector():
        before.read_shared()
    before.restore()
    assert gc.isenabled()


@pytest.mark.parametrize("is_on", [True, False])
def test_an_import_leaves_the_collector_as_it_was(is_on):
    before = gc.isenabled()
    try:
        (gc.enable if is_on else gc.disable)()
        import_large("json")
        with pytest.raises(ImportError):
            import_large("no_module_of_this_name")
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()
