"""Disks, messages and clocks that fail on a seeded schedule, and what must hold then."""
