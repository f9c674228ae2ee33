"""What a program does to the world besides its result, replayed after the graph: output, logging, warnings."""
