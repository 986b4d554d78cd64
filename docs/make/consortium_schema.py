"""The schema of a consortium's file, from the classes that read one.

`python -m docs.make.consortium_schema` writes it into the package; a test says when it is due.
"""

from __future__ import annotations

import json
from typing import Any

from docs.make.links import ROOT
from tacit.deploy.agreement import File

PLACE = ROOT / "src" / "tacit" / "schemas" / "consortium.schema.json"


def made() -> dict[str, Any]:
    about = "What all parties of a consortium agree on, each with a copy (docs/deploy.md)."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "tacit/consortium.schema.json",
        **File.model_json_schema(),
        "title": "consortium.toml",
        "description": about,
    }


if __name__ == "__main__":
    PLACE.write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
