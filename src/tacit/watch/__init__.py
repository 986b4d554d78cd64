"""A live page for a run, a silo or a coordinator: read from its folder, served on loopback."""

from tacit.watch.server import Watch

__all__ = ["Watch"]
