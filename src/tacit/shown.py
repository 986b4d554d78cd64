"""How things show themselves in a notebook: `tacit.report.notebook` makes HTML of plain values.

Most of what is shown lies below the report, which is slow to import. So the report is found by its
name, and only once something is shown.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

REPORT = "tacit.report.notebook"


def as_html(kind: str, content: Mapping[str, Any]) -> str:
    """HTML of something of this kind: a function of that name in the report."""
    return getattr(importlib.import_module(REPORT), kind)(content)
