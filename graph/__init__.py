"""What is captured, as a ``torch.fx`` graph with fake values: built node by node, cut back, finished."""
from sot.graph.builder import GraphBuilder
from sot.graph.refs import GeneratorRef, NumberRef, TensorRef

__all__ = ["GeneratorRef", "GraphBuilder", "NumberRef", "TensorRef"]
