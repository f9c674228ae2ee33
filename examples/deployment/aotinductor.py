"""Compile a captured model to a shared library with AOTInductor, and run it in a process without SOT.

It needs a C++ compiler.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import sot

SERVER = """
import sys, torch
package, batches, results = sys.argv[1:]
model = torch._inductor.aoti_load_package(package)
torch.save([model(x) for x in torch.load(batches)], results)
assert "sot" not in sys.modules
"""


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)).eval()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = sot.save(model, folder / "model", input_spec=[sot.InputSpec((None, 8))])
        program = sot.load(saved).programs["forward"]
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.aoti.pt2"))
        batches = [torch.randn(rows, 8) for rows in (5, 9)]     # the input_spec leaves the number of rows open
        torch.save(batches, folder / "batches.pt")
        command = [sys.executable, "-c", SERVER, package, str(folder / "batches.pt"), str(folder / "results.pt")]
        environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}       # torch would import SOT for SOT_ENABLE
        subprocess.run(command, check=True, timeout=120, env=environment)
        for x, found in zip(batches, torch.load(folder / "results.pt"), strict=True):
            torch.testing.assert_close(found, model(x))
    print("AOTInductor and PyTorch agree, for 5 and 9 rows")


if __name__ == "__main__":
    main()
