"""The page of all files that tacit writes or reads, with their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from docs.make.reference import cell
from tacit.schemas import FILES, schema

TITLE = """# Files

Everything that a run writes is JSON, a line of JSON for each entry, `safetensors`, HTML or plain
text. Nothing is unpickled, ever. Schemas come with the package: `tacit.schemas.schema("result")`
has one as plain values. They are [JSON Schema](https://json-schema.org) 2020-12, and the tests of
tacit hold files of every kind against them.

| in a run's folder | |
|---|---|
| `result.json` | what was promised, reached and set: [below](#result) |
| `ledger.jsonl` | every release, on disk before it was made: [below](#ledger) |
| `report.html` | the same for people, in one file that needs no connection |
| `models/about.json` | what the tensors belong to: [below](#models) |
| `models/personal.safetensors` | parameters of all tasks, stacked in the order of `tasks` |
| `models/combined.safetensors` | what tasks combine with these in their last step |
| `models/billboard.safetensors` | what is public |
| `models/scaling.safetensors` | how each task scales its own rows |
| `checkpoint/` | what `--resume` goes on from; internal, and gone after the run if you like |

```python
import json

from tacit.schemas import FILES, schema

sorted(FILES)  # ['consortium', 'ledger', 'models', 'result']
print(json.dumps(schema("ledger"), indent=1)[:60])
```
"""


def pages() -> dict[str, str]:
    parts = [TITLE]
    for name, file in FILES.items():
        found = schema(name)
        parts.append(f"## {file} {{ #{name} }}\n\n{found['description']}\n")
        rows = list(rows_of(found, found))
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n")
    return {"files.md": "\n".join(parts)}


def rows_of(part: dict[str, Any], whole: dict[str, Any], before: str = "") -> Iterator[str]:
    """Fields with their types, those of objects below them."""
    for case in ("then", "else"):
        if case in part:
            yield f"| *{part[case]['description']}* | | |"
            yield from rows_of(part[case], whole, before)
    for name, given in part.get("properties", {}).items():
        one = resolved(given, whole)
        where = f"{before}{name}"
        needed = "" if name in part.get("required", ()) else " (may be absent)"
        about = one.get("description") or (one.get("title") or "")
        default = f" Default: `{given['default']}`." if "default" in given else ""
        yield f"| `{where}` | {kind_of(one)} | {cell(about)}{default}{needed} |"
        if before.count(".") < 2:
            yield from rows_of(one, whole, f"{where}.")
            inner = one.get("additionalProperties")
            if isinstance(inner, dict):
                yield from rows_of(resolved(inner, whole), whole, f"{where}.NAME.")


def resolved(part: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for; of several kinds, the one that is not null."""
    kinds = [one for one in part.get("anyOf", ()) if one.get("type") != "null"]
    if len(kinds) == 1:
        part = kinds[0] | {k: v for k, v in part.items() if k == "description"}
    if "$ref" in part:
        return whole["$defs"][part["$ref"].rpartition("/")[2]]
    return part


def kind_of(part: dict[str, Any]) -> str:
    if "enum" in part:
        return ", ".join(f"`{one}`" for one in part["enum"])
    if "const" in part:
        return f"`{json.dumps(part['const'], ensure_ascii=False)}`"
    kinds = [part] if "type" in part else part.get("anyOf", ())
    names = [one.get("type", "") for one in kinds]
    flat = [inner for one in names for inner in (one if isinstance(one, list) else [one])]
    return ", ".join(filter(None, flat))
