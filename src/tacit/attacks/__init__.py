"""Attacks on runs: what they prove, beside what a run promises."""
