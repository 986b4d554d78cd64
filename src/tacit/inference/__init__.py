"""What a mixed model found: coefficients with their errors, variances, own effects."""
