"""Guards on objects of particular classes, and origins in them."""
