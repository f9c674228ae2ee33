"""Side effects that are replayed after the graph: output, logging, warnings."""
