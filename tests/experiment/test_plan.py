"""A setting is declared once: flags, files, signatures and terms follow from the plan."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

import tacit
from tacit.cli.train import FLAGS, with_settings
from tacit.deploy.terms import Terms, terms_of
from tacit.experiment.plan import Plan, in_files, with_new_names
from tacit.experiment.start import method_of
from tacit.experiment.toml import CuratorSection, PrivacySection, RunSection, check, merge
from tacit.experiment.train import SETTINGS
from tacit.methods import METHODS, PMTL
from tests.conftest import arrays

NAMES = [one.name for one in dataclasses.fields(Plan)]
QUICK = {"rounds": 2, "personalise": "none", "baselines": False}


def federation():
    return tacit.data.from_arrays(*arrays(4, 3, "regression"), kind="regression")


def test_every_setting_is_in_signatures_files_and_flags():
    for function in (tacit.train, tacit.tune, tacit.audit):
        assert set(NAMES) <= set(inspect.signature(function).parameters)
        assert "personalise : the last step" in (function.__doc__ or "")
    parts = {"method", "publishing", "privacy", "curator", "attendance"}
    assert set(RunSection.model_fields) == set(NAMES) - parts
    assert set(RunSection.model_fields) <= FLAGS.keys()
    for section, kind in ((PrivacySection, tacit.Privacy), (CuratorSection, tacit.Secure)):
        own = {one.name for one in dataclasses.fields(kind)}
        assert own == section.model_fields.keys() - {"kind"} and own <= FLAGS.keys()
    assert in_files(agreed=True).keys() <= {one.name for one in dataclasses.fields(Terms)}


def test_flags_of_a_method_are_settings_that_some_method_has():
    shortcuts = [
        flag for flag in FLAGS.values() if flag.section == "method" and flag.kind is not dict
    ]
    known = {one.name for kind in METHODS.values() for one in dataclasses.fields(kind)} | {"name"}
    assert len(shortcuts) > 3 and {flag.key for flag in shortcuts} <= known


def test_settings_as_name_and_value_have_the_last_say():
    seen = {}

    @with_settings
    def command(config=None, *, flags):
        seen.update(flags)

    given = {"option": ["schema=a.json"], "set": ["lr=2"], "lr": 1.0, "cohort": 3.0}
    command(config=None, **dict.fromkeys(FLAGS) | given)
    assert seen["data"]["schema"] == "a.json" and seen["method"]["lr"] == 2
    assert seen["run"]["cohort"] == 3 and isinstance(seen["run"]["cohort"], int)


def test_the_help_page_needs_no_torch():
    code = "import sys, tacit.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"round": 3}, "there is no setting 'round'; did you mean 'rounds'?"),
        ({"rounds": "3"}, "rounds='3' must be a whole number or none"),
        ({"rounds": 2.5}, "rounds=2.5 must be a whole number"),
        ({"baselines": "no"}, "baselines='no' must be true or false"),
        ({"seed": "a"}, "seed='a' must be a whole number or none"),
        ({"cohort": "half"}, "cohort='half' must be a number"),
        ({"store": "tape"}, "store='tape': choose one of memory, disk"),
        ({"privacy": 1.0}, "privacy=1.0: pass tacit.Privacy"),
        ({"publishing": "adam"}, "publishing='adam': pass tacit.Publishing"),
        ({"attendance": 0.5}, "attendance=0.5: pass tacit.Attendance"),
    ],
)
def test_wrong_names_and_types_are_refused_in_one_sentence(settings, words):
    for function in (tacit.train, tacit.audit):
        with pytest.raises(tacit.TacitError, match=r"^[^\n]*$") as refused:
            function(federation(), "pmtl", **settings)
        assert words in str(refused.value)


def test_what_decides_a_run_is_compared_when_it_is_resumed(tmp_path):
    plan = Plan(method=PMTL(), seed=3, engine="flower", device="cuda", out=tmp_path)
    kept = plan.to_json()
    assert kept["seed"] == 3 and kept["engine"] == "flower"
    assert not {"device", "out", "store", "baselines", "attendance"} & kept.keys()
    tacit.train(federation(), PMTL(), seed=3, out=tmp_path, **QUICK)
    assert (tmp_path / "checkpoint" / SETTINGS).is_file()
    with pytest.raises(tacit.TacitError, match="was started with other publishing"):
        publishing = tacit.Publishing(rule="momentum")
        tacit.train(
            federation(), PMTL(), seed=3, out=tmp_path, resume=True, publishing=publishing, **QUICK
        )


def test_terms_give_back_the_plan_that_made_them(make_federation):
    parts = {"publishing": tacit.Publishing(average=1.0), "curator": tacit.Secure()}
    run = {"model": "mlp", "rounds": 4, "cohort": 0.5, "seed": 2, "personalise": "none"}
    plan = Plan(method=PMTL(lr=0.3), privacy=tacit.Privacy(noise=1.0), **parts, **run)
    again = Terms.from_json(terms_of(make_federation(), plan).to_json()).plan()
    assert again == plan and method_of(again.method) == PMTL(lr=0.3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"patience": 3}, "are not for tuning"),
        ({"store": "disk"}, "are not for tuning"),
        ({"engine": "flower"}, "are not for tuning"),
        ({"curator": tacit.Secure()}, "makes all runs by itself"),
        ({"privacy": None}, "books what a choice costs"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_python_too(settings, words):
    given = {"privacy": tacit.Privacy(noise=1.0), "seed": 0} | settings
    with pytest.raises(tacit.TacitError, match=words):
        tacit.tune(federation(), PMTL(), search={"lr": [0.1]}, **given)


def test_old_names_work_for_one_version_and_name_the_new_one():
    with pytest.warns(FutureWarning, match="tacit.Server is called tacit.Publishing now"):
        rule = tacit.Server(rule="momentum")
    assert rule == tacit.Publishing(rule="momentum")
    with pytest.warns(FutureWarning, match="server is called publishing now"):
        assert Plan.of(server=rule) == Plan(publishing=rule)
    with pytest.raises(tacit.TacitError, match="old name of publishing: leave server out"):
        Plan.of(server=rule, publishing=rule)
    tables = {"data": {"from": "exam"}, "server": {"rule": "momentum"}}
    with pytest.warns(FutureWarning, match="server is called publishing now"):
        config = check(merge(tables, {"server": {"lr": 0.5}, "publishing": {}}))
    assert config.plan().publishing == tacit.Publishing(rule="momentum", lr=0.5)


def test_a_run_that_began_with_an_old_name_goes_on(tmp_path):
    """Nothing is said where it was not used: an older version wrote it with no value."""
    given = {"seed": 3, "out": tmp_path, **QUICK}
    tacit.train(federation(), PMTL(), **given)
    kept = tmp_path / "checkpoint" / SETTINGS
    kept.write_text(kept.read_text().replace('"publishing"', '"server"'))
    assert tacit.train(federation(), PMTL(), resume=True, **given).config["publishing"] is None
    assert with_new_names({"server": None, "run": {}}) == {"run": {}}
