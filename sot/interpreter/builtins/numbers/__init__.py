"""Python numbers: those that vary from call to call, those of 0-d tensors, and conversions by special methods."""
