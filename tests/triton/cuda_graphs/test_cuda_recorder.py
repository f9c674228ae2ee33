"""CUDA graphs: what the recorder asks of ``torch.cuda``, which is replaced here."""
from __future__ import annotations

import contextlib
import types

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed")

from sot.backends.triton import cuda_graphs
from sot.backends.triton.cuda_graphs import Cuda

SECOND = torch.device("cuda", 1)


class Stream:
    def __init__(self, name, told):
        self.name, self.told = name, told

    def wait_stream(self, other):
        self.told.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def told(monkeypatch):
    """What ``torch.cuda`` was asked for, in order."""
    found: list[str] = []

    def entered(name):
        @contextlib.contextmanager
        def context(*args, **kwargs):
            found.append(f"{name} {' '.join(map(str, [*args, *kwargs.values()]))}")
            yield
            found.append(f"end of {name}")
        return context

    class Graph:
        def register_generator_state(self, generator):
            found.append(f"register {generator}")

        def replay(self):
            found.append("replay")

        def __str__(self):
            return "G"
    monkeypatch.setattr(torch, "cuda", types.SimpleNamespace(
        CUDAGraph=Graph, device=entered("device"), graph=entered("graph"), synchronize=lambda: found.append("wait"),
        Stream=lambda device: f"stream of {device}"))
    cuda_graphs._recording_stream.cache_clear()
    yield found
    cuda_graphs._recording_stream.cache_clear()


def test_a_graph_is_recorded_on_a_stream_of_its_device(told):
    def run(inputs):
        told.append(f"run {inputs}")
        return ["result"]
    results, replay = Cuda(SECOND).record(run, [7], ["generator"])
    replay()
    assert results == ["result"]
    assert told == ["register generator", "device cuda:1", "wait", "graph G stream of cuda:1 thread_local", "run [7]",
                    "end of graph", "end of device", "replay"]


def test_a_replay_on_another_stream_waits_for_the_last_one(monkeypatch):
    told: list[str] = []
    one, two = Stream("one", told), Stream("two", told)
    recorder, now = Cuda(SECOND), [one]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: now[0] if device == SECOND else None)
    for now[0] in (one, one, two, two, one):
        recorder.follow()
    assert told == ["two waits for one", "one waits for two"]


def test_only_tensors_of_its_device_are_recorded():
    recorder = Cuda(SECOND)
    found = [recorder.records(types.SimpleNamespace(is_cuda=d.type == "cuda", device=d))
             for d in (SECOND, torch.device("cuda", 0), torch.device("cpu"))]
    assert found == [True, False, False]
