"""Shared coefficients in a report, and what sets one silo apart on its own page."""

from __future__ import annotations

import re

from tacit.report import silo
from tacit.report.html import page
from tacit.report.shared import as_text, decimals, forest, shown, tables


def coefficient(name, estimate, sampling, privacy):
    error = None if sampling is None else (sampling**2 + privacy**2) ** 0.5
    known = error is not None
    return {
        "name": name, "estimate": estimate, "error": error, "sampling_error": sampling,
        "privacy_error": privacy, "low": estimate - 1.96 * error if known else None,
        "high": estimate + 1.96 * error if known else None, "shrunk": 0.1, "spread": 2.0,
    }  # fmt: skip


def fake_summary():
    return {
        "label": "computed from releases alone: covered by the guarantee, and may be published",
        "units": "units of the table",
        "coefficients": [
            coefficient("intercept", 251.4, 6.8, 3.0),
            coefficient("age <b>", 0.337, 0.016, 0.012),
            coefficient("cost $x$", -7.3, 0.5, 30.0),
            coefficient("unseen", None, None, None),
        ],
        "own": {
            "names": ["intercept", "age <b>"],
            "deviations": [24.7, 5.9],
            "correlations": [[1.0, 0.07], [0.07, 1.0]],
            "errors": [
                {"error": 3.1, "low": 17.7, "high": 30.2},
                {"error": None, "low": 0.0, "high": 8.8},
            ],
        },
        "residual_deviation": 25.6,
        "residual_error": {"error": None, "low": None, "high": None},
        "icc": 0.48,
        "marginal_r2": 0.28,
        "conditional_r2": None,
        "r2_label": "approximate",
        "tasks": 300,
        "releases": 6,
        "guarantee": "ε=1.00 at δ=0.000333",
    }


def test_section_is_there_for_mixed_models_alone_and_is_called_covered(make):
    result = make()
    assert "Shared coefficients" not in page(result)
    text = page(result | {"summary": fake_summary()})
    block = text.split("<h2>Shared coefficients</h2>")[1].split("<h2>")[0]
    assert "covered by the guarantee, and may be published" in block
    assert "Not covered" not in block
    for word in (
        "0.337",
        "0.020",
        "0.012",
        "0.298 to 0.376",
        "correlation with intercept",
        "∞",
        "17.7 to 30.2",
        "0.0 to 8.8",
    ):
        assert word in block, word
    assert "age &lt;b&gt;" in block and "<b>age" not in block and "age <b>" not in block
    assert "<svg" in block and "not known" in block
    assert "its standard error is infinite" in block


def test_light_part_of_the_forest_is_what_privacy_adds():
    fig = forest(fake_summary())
    assert fig is not None
    bars = [line for line in fig.axes[0].lines if line.get_linewidth() == 6]
    whole, sampled = (line.get_xdata() for line in bars[:2])
    assert abs((whole[1] - whole[0]) / (2 * 1.96 * 0.02 * 2.0) - 1) < 1e-9
    assert abs((sampled[1] - sampled[0]) / (whole[1] - whole[0]) - 0.8) < 1e-9
    # What is hardly known leaves room for the others, and says that it goes on.
    low, high = fig.axes[0].get_xlim()
    assert low < whole[0] < whole[1] < high < 4 * whole[1]
    assert {"<", ">"} <= {line.get_marker() for line in fig.axes[0].lines}


def test_no_forest_where_nothing_is_known():
    found = fake_summary()
    found["coefficients"] = [found["coefficients"][k] for k in (0, 3)]
    assert forest(found) is None
    assert "<table" in tables(found)


def test_numbers_have_as_many_digits_as_their_error():
    assert [decimals(e) for e in (6.8, 0.02, 120.0, 0.0, None)] == [1, 3, 0, None, None]
    assert shown(-0.30449, 3) == "−0.304"
    assert shown(None) == "–"
    assert shown(0.0) == "0"
    assert shown(3.2e9) == "3.200e+09" and shown(1.5e-9) == "1.500e−09"


def test_text_has_columns_in_line():
    lines = as_text(fake_summary()).splitlines()
    head = next(line for line in lines if "95 % interval" in line)
    row = next(line for line in lines if line.startswith("age"))
    assert head.index("shrunk") + len("shrunk") == len(row)
    assert lines[0] == "Mixed model of 300 tasks, 6 releases; units of the table"


def test_text_spares_a_wall_of_dashes_where_no_coefficient_means_anything():
    found = fake_summary()
    assert "of which privacy" in as_text(found)
    for each in found["coefficients"]:
        each |= {"error": None, "privacy_error": None, "low": None, "high": None, "estimate": None}
    assert "of which privacy" in as_text(found)  # noise hides them; what predictions use is there
    found["without_unit"] = ["age"]
    assert "of which privacy" not in as_text(found) and "No common unit" in as_text(found)


def silo_report(guarantee):
    return {
        "silo": "north", "consortium": "hospitals", "kind": "regression", "rounds": 6, "rows": 9,
        "measured_on": "test", "score": "mse", "higher_is_better": False,
        "personal": {"mse": 0.5, "loss": 0.4}, "alone": None, "chosen": "what the method left",
        "numbers": 40, "leaves": ["a sum"], "guarantee": guarantee | {"tuning": "given"},
    }  # fmt: skip


def test_a_silo_sees_what_sets_it_apart(make):
    report = silo_report(make()["guarantee"])
    assert "What sets this silo apart" not in silo.page(report, [])
    effects = {
        "names": ["intercept", "age"], "effects": [12.07, 0.0043], "errors": [9.09, 0.179],
        "deviations": [11.55, 0.183], "units": "units of the table",
    }  # fmt: skip
    text = silo.page(report | {"effects": effects}, [])
    block = text.split("<h2>What sets this silo apart</h2>")[1].split("<footer")[0]
    assert "12.1" in block and "9.1" in block and "between silos" in block
    assert "no ε covers" in block and "<svg" in block
    assert not re.search(r"\btasks?\b", re.sub(r"<[^>]+>", " ", block))
