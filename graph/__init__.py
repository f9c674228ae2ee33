"""The captured graph: a ``torch.fx`` graph with fake values that is built node by node, cut back, and finished."""
from sot.graph.builder import GraphBuilder
from sot.graph.refs import GeneratorRef, NumberRef, TensorRef

__all__ = ["GeneratorRef", "GraphBuilder", "NumberRef", "TensorRef"]
