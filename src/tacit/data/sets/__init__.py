"""Public data sets by name, and made-up ones."""
