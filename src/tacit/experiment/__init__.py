"""From settings to a finished run: train, tune, mixed models, results and their files."""
