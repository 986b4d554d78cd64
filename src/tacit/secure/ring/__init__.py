"""Words that wrap around: real numbers in them, products, masks and shares."""
