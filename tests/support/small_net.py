"""A small model as source: each program that executes it gets a class of its own, with code that is new to the hook."""

SOURCE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(8)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu() + 1
        return x
"""
