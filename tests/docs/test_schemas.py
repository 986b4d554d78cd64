"""Files that runs write hold against the schemas that ship with the package."""

from __future__ import annotations

import copy
import json
import tomllib

import jsonschema
import pytest

import tacit
from docs.make.consortium_schema import made
from docs.make.formats import pages
from docs.make.links import ROOT
from tacit.deploy.agreement import Agreement
from tacit.errors import TacitError
from tacit.schemas import FILES, schema
from tests.docs.pages import blocks

CASES = {
    "private": (tacit.PMTL(clip=0.5), {"privacy": tacit.Privacy(noise=5.0)}),
    "mixed": ("auto", {"privacy": tacit.Privacy(noise=5.0)}),
    "not private": (tacit.FedAvg(), {}),
    "exchange": (tacit.FedAMP(), {}),
    "groups": (tacit.Clusters(groups=2, clip=0.5), {"privacy": tacit.Privacy(noise=5.0)}),
}


@pytest.mark.parametrize("case", CASES)
def test_files_of_a_run_are_as_the_schemas_say(case, make_federation, tmp_path):
    method, settings = CASES[case]
    rounds = {} if method == "auto" else {"rounds": 3}
    tacit.train(
        make_federation(),
        method,
        out=tmp_path,
        seed=0,
        baselines=False,
        personalise="none",
        **rounds,
        **settings,
    )
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    jsonschema.validate(result, schema("result"))
    about = json.loads((tmp_path / "models" / "about.json").read_text(encoding="utf-8"))
    jsonschema.validate(about, schema("models"))
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines() if settings else []
    assert bool(lines) == bool(settings)
    for line in lines:
        jsonschema.validate(json.loads(line), schema("ledger"))
    _refuses_what_is_not_there(result, lines)


def _refuses_what_is_not_there(result, lines):
    """Schemas have teeth: a field less, a field more, another type."""
    for change in (
        lambda one: one.pop("guarantee"),
        lambda one: one.update(unheard=1),
        lambda one: one["guarantee"].update(epsilon="2"),
        lambda one: one["verdict"].pop("label"),
    ):
        other = copy.deepcopy(result)
        change(other)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(other, schema("result"))
    for line in lines[:1]:
        entry = json.loads(line)
        del entry["chain"]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(entry, schema("ledger"))


def test_a_tuning_in_a_ledger_is_as_the_schema_says(tmp_path):
    from tacit.privacy import Everyone, Ledger, Release, Repeated

    tuning = Repeated(frozenset({(Release(Everyone(), 5.0), 3)}), 4.0)
    Ledger.at(tmp_path / "ledger.jsonl").book(0, tuning, repeatable=False)
    entry = json.loads((tmp_path / "ledger.jsonl").read_text())
    assert entry["kind"] == "tuning"
    jsonschema.validate(entry, schema("ledger"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**entry, "run": 3}, schema("ledger"))


def test_the_schema_of_a_consortium_is_what_its_file_is_read_by(tmp_path):
    assert schema("consortium") == made(), "run python -m docs.make.consortium_schema"
    (shown, *_) = [one for one in blocks(ROOT / "docs" / "deploy.md") if one.language == "toml"]
    file = tmp_path / "consortium.toml"
    file.write_text(shown.code, encoding="utf-8")
    Agreement.read(file)
    agreed = tomllib.loads(shown.code)
    jsonschema.validate(agreed, schema("consortium"))
    agreed["data"]["columns"]["age"] = {"ragne": [0, 120]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(agreed, schema("consortium"))


def test_schemas_are_schemas_and_every_field_is_in_the_page():
    (page,) = pages().values()
    for name, file in FILES.items():
        jsonschema.Draft202012Validator.check_schema(schema(name))
        assert f"## {file} " in page
    for field in schema("result")["properties"]["guarantee"]["properties"]:
        assert f"`guarantee.{field}`" in page


def test_an_unknown_schema_is_one_sentence():
    with pytest.raises(TacitError, match=r"no schema 'resutl'.*result"):
        schema("resutl")
