"""Kernels from an ATen graph: their IR, fusion, schedule and memory, and a reference in NumPy."""
