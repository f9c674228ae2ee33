"""The Triton backend: source, sizes as arguments, the cache, launching, CUDA graphs, tuning."""
