"""A run across silos: what is agreed, what a silo does, what the coordinator does. No transport."""

import importlib.util

from tacit.errors import TacitError

try:  # a package that is hidden, as tests do, has no spec to find
    _keys = importlib.util.find_spec("cryptography") is not None
except ValueError:
    _keys = False
if not _keys:
    raise TacitError("runs across silos need keys and Flower: pip install 'tacit[flower]'")
