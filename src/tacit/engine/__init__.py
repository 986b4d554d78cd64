"""What runs: many tasks trained together, round after round, with checkpoints."""
