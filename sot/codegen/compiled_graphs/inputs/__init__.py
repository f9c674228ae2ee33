"""What a compiled graph does to its inputs: their memory, their versions, the inner tensors of wrappers."""
