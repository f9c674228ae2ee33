"""From the kernel IR to the source of a Triton kernel, and of the module that launches kernels."""
