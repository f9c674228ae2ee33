"""How kernels fit the processors of a GPU: the order of axes, tiles, parts of long reductions, shared launches."""
