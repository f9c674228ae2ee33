"""Python numbers: those that vary from call to call, and those of 0-d tensors."""
