"""The one exception users see: a sentence with the cause and the remedy, never a traceback."""


class TacitError(ValueError):
    """Something the user gave cannot be used; the message says what, and what to do instead."""
