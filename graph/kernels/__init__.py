"""Kernels from an ATen graph: their IR, which operations share one, schedule and memory, a reference in NumPy."""
