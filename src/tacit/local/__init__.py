"""What a task does alone: its batches, its model as a function, its training."""
