"""All private parts of torch, by subject; nothing else in the package may touch them."""
