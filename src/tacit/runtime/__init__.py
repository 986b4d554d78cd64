"""Where methods run: on one machine, round after round, with checkpoints."""
