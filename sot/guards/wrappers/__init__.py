"""Guards on instances of wrapper subclasses of Tensor."""
