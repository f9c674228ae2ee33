"""All uses of torch's private parts, by subject. No other part of this package may use them."""
