"""What is captured, as a ``torch.fx`` graph with fake values: built node by node, cut back, finished."""
from sot.graph.builder import GraphBuilder, TensorRef

__all__ = ["GraphBuilder", "TensorRef"]
