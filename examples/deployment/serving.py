"""Serve a model to 16 threads with FastAPI. All threads share the captures, which accept any number of rows."""
from concurrent.futures import ThreadPoolExecutor

import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient
from torch import nn

import sot

THREADS, REQUESTS = 16, 64


def service(model: nn.Module) -> FastAPI:
    app = FastAPI()

    @app.post("/predict")
    def predict(rows: list[list[float]]) -> list[list[float]]:     # FastAPI runs it in a pool of threads
        with torch.no_grad():
            return model(torch.tensor(rows)).tolist()
    return app


def main() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 2)).eval()
    requests = [torch.randn(1 + i % 5, 4).tolist() for i in range(REQUESTS)]
    with torch.no_grad():
        expected = [plain(torch.tensor(rows)).tolist() for rows in requests]
    model = sot.to_static(plain, input_spec=[sot.InputSpec([None, 4], "float32")], backend="eager")
    client = TestClient(service(model))

    def ask(rows: list[list[float]]) -> list[list[float]]:
        answer = client.post("/predict", json=rows)
        assert answer.status_code == 200, answer.text
        return answer.json()

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(ask, requests)) == expected
    assert sot.translation_of(model).graphs
    print(f"{REQUESTS} requests from {THREADS} threads, all answers as without SOT")


if __name__ == "__main__":
    main()
