"""The Triton backend: generated source, sizes as arguments, the cache, launching, CUDA graphs, tuning."""
