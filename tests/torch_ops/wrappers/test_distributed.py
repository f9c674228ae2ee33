"""DTensors and functional collectives in two processes over gloo: one graph, with the results of plain PyTorch."""
import datetime
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import caught, check

import sot

RANKS = 2
A_MINUTE = datetime.timedelta(minutes=1)


def rows_of(programs, backend, folder):
    """What each rank has written."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
               "127.0.0.1", "--nproc-per-node", str(RANKS)]
    done = subprocess.run([*command, str(Path(__file__).with_name(programs)), backend, str(folder)], text=True,
                          timeout=300, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads((folder / f"rank{rank}").read_text()) for rank in range(RANKS)]


def collectives(call, *args):
    """The number of collectives in a call."""
    before = dist.group.WORLD._get_sequence_number_for_group()
    call(*args)
    return dist.group.WORLD._get_sequence_number_for_group() - before


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_two_processes(backend, tmp_path):
    for rows in rows_of("distributed_programs.py", backend, tmp_path):
        assert rows == {name: [True, 1, []] for name in rows} and len(rows) == 18


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_library_code_for_processes_is_not_cut(backend, tmp_path):
    """A call of it is Python's as a whole, and modules inside of it are captured on their own."""
    once = {"NOT_COMPILED", "OPAQUE_ITERATOR", "FIRST_CALL", "OTHER_TENSOR", "OPTIMIZER"}
    for rows in rows_of("programs_in_pieces.py", backend, tmp_path):
        assert all(same for same, _, _ in rows.values())
        assert [why for why in rows["ddp_step"][2] if why not in once] in (
            ["OPAQUE_CALL", "GRADIENT"], ["OPAQUE_CALL", "GRADIENT", "OPAQUE_CALL"])
        assert rows["objects"][1:] == [2, ["OPAQUE_CALL"]]
        assert rows["parallel_by_hand"][1:] == [1, []] or backend != "eager"
        assert rows["too_late"][1:] == [2, []]
        assert rows["waited_for_elsewhere"][1:] == [1, ["SIDE_EFFECT"] * 2]


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sharded_modules_are_one_graph(backend, tmp_path):
    """From the second call on: the first makes the tensors of the whole parameters."""
    for rows in rows_of("sharded_programs.py", backend, tmp_path):
        assert all(same for same, _, _ in rows.values()) and len(rows) == 24
        models = {name: row[1:] for name, row in rows.items() if "a whole step" not in name}
        assert models.pop("a break")[1].count("USER_BREAK") == 3
        assert models.pop("without gradients") == [2, ["NOT_COMPILED"]]
        around = models.pop("checkpoints around")
        assert around == [1, ["NOT_COMPILED"]] or backend != "eager"
        assert models == {name: [1, ["NOT_COMPILED"]] for name in models}
        assert all(row[2].count("GRADIENT") == 1 for name, row in rows.items() if "a whole step" in name)
        assert rows["a whole step, a group"][1] == 2
        assert rows["a whole step, a group, a block left out"][2].count("SIDE_EFFECT") == 1


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_each_call_communicates_as_often_as_plain_python(backend):
    """Neither capture nor a compiler communicates, also where it knows the tensor: other ranks do not take part."""
    def step(x, number):
        flag, out, y = torch.tensor(number), torch.zeros(3), x * 2
        dist.all_reduce(flag)
        dist.barrier()
        dist.all_reduce(y)
        dist.all_gather_into_tensor(out, y)
        dist.reduce(out, 0)
        return y * flag, out

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        translated = sot.to_static(step, backend=backend)
        assert {collectives(call, torch.ones(3), n) for call in (step, translated) for n in (1, 1, 2, 2)} == {5}
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_a_graph_that_fails_after_a_collective_is_not_run_again():
    """Its exception leaves the function: the other ranks would not take part again."""
    def step(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    def failing(module, examples):
        def call(*args):
            module.forward(*args)
            raise RuntimeError("the device is gone")
        return call
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert collectives(caught, sot.to_static(step, backend=failing), torch.ones(3)) == 1
        assert "the device is gone" in repr(caught(sot.to_static(step, backend=failing), torch.ones(3)))
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
def test_enums_of_reductions():
    def fn(x, op):
        return x * 2 if op == dist.ReduceOp.SUM else x + 1, dist.ReduceOp.SUM == dist.ReduceOp.AVG, op
    check(fn, torch.ones(3), dist.ReduceOp.SUM, graphs=1, breaks=0)
    check(fn, torch.ones(3), dist.ReduceOp.MAX, graphs=1, breaks=0)


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_collectives_that_raise_or_are_asynchronous():
    """In a group of one process: what no node does is Python's, with the program's exceptions."""
    def wrong(x):
        y = x * 2
        return caught(dist.all_reduce, y, dist.ReduceOp.AVG), y

    def wrong_after_another(x):
        y = x * 2
        dist.all_reduce(y)
        try:
            dist.all_reduce(y, op=dist.ReduceOp.BAND)
        except RuntimeError as error:
            return str(error), y + 1
        return y

    def wrong_after_a_change(x):
        seen.append(1)
        y = x * 2
        dist.all_reduce(y)
        dist.all_reduce(y, op=dist.ReduceOp.BAND)
        return y

    def waited_for_in_a_handler(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = y.sin()
        try:
            work.wait()
        except RuntimeError:
            return z
        return y

    def printed_first(x):
        y = x * 2
        print("before")
        dist.barrier()
        return y

    def later(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        work.wait(A_MINUTE)
        return y + 1

    def asked_whether_done(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        while not work.is_completed():
            pass
        return work.wait(A_MINUTE), y

    def kept(x):
        y = x * 2
        works.append(dist.all_reduce(y, async_op=True))
        return y

    def waited_for_later(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 1
        sot.graph_break()
        work.wait(A_MINUTE)
        return y + z

    def done_before(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        work.wait(A_MINUTE)
        sot.graph_break()
        return y + 1, work.wait(A_MINUTE), work.is_completed()

    def of_another_shape(x):
        out = x.new_empty(2)
        return caught(dist.all_gather_into_tensor, out, x * 2)

    def of_another_dtype(x):
        out = x.new_empty(3, dtype=torch.float64)
        return caught(dist.all_gather_into_tensor, out, x * 2), out.dtype

    def with_a_warning(x):
        out = torch.empty_like(x)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            dist.all_gather_into_tensor(out, x * 2)
        return out, [(w.category, str(w.message)) for w in found]

    def of_autograd(x):
        y = (x.clone().requires_grad_() * 2)
        dist.all_reduce(y)
        return y.detach()

    def strided(x):
        y = (x * 2).view(3, 1).expand(3, 2).t()
        return caught(dist.broadcast, y, 0), y

    def asked(x):
        return x * dist.get_world_size(), dist.get_rank(), dist.is_initialized()

    def asked_of_a_group(x):
        group = groups[0]
        return x * dist.get_world_size(group), dist.get_rank(group), group == groups[0], group != dist.group.WORLD
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        check(wrong, torch.ones(3))
        for fn in (of_autograd, strided, asked_whether_done, waited_for_later, done_before,
                   waited_for_in_a_handler):
            check(fn, torch.ones(3), again=False)
        seen = []
        check(wrong_after_another, torch.ones(3))
        for call in (wrong_after_a_change, sot.to_static(wrong_after_a_change)):
            caught(call, torch.ones(3))
        assert seen == [1, 1]
        check(printed_first, torch.ones(3), graphs=1, breaks=1)
        check(later, torch.ones(3), graphs=1, breaks=0)
        assert "RuntimeError" in repr(of_another_shape(torch.ones(3)))
        assert "RuntimeError" in repr(of_another_dtype(torch.ones(3)))
        for fn in (of_another_shape, of_another_dtype, with_a_warning):
            check(fn, torch.ones(3))
        works = []
        y = sot.to_static(kept)(torch.ones(3))
        works[0].wait(A_MINUTE)
        assert y.tolist() == [2, 2, 2]
        groups = [dist.new_group([0])]
        for fn in (asked, asked_of_a_group):
            check(fn, torch.ones(3), graphs=1, breaks=0)
    finally:
        dist.destroy_process_group()
