"""What a graph needs before a backend compiles it: pieces, results detached or added, numbers as tensors, recurrent
networks layer by layer."""
