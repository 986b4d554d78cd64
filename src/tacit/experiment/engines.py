"""Who runs the rounds of a plan: this process, or something that is found by its name."""

SIMULATE, FLOWER = "simulate", "flower"
ELSEWHERE = {FLOWER: "tacit.deploy.flower.simulation"}
"""Modules with `run_elsewhere`, imported when one is asked for: they need further packages."""
