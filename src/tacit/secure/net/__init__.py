"""Servers as processes: links, certificates, doors, daemons."""
