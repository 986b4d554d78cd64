"""A run across silos: what is agreed, what a silo does, what the coordinator does. No transport."""
