"""Export a captured model to ONNX, and run it with ONNX Runtime."""
import tempfile
from pathlib import Path

import onnxruntime
import torch
from torch import nn

import sot


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    x = torch.randn(5, 8)
    with tempfile.TemporaryDirectory() as folder:
        program = sot.load(sot.save(model, Path(folder) / "model", input_spec=[sot.InputSpec((5, 8))]))
        file = Path(folder) / "model.onnx"
        torch.onnx.export(program.programs["forward"], (), str(file), dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(str(file))
        found, = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(x))
    print(f"ONNX Runtime and PyTorch agree: {found.shape}")


if __name__ == "__main__":
    main()
