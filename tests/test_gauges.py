"""Numbers for Prometheus: their form, and that nothing in them comes from rows."""

from __future__ import annotations

import json
import math
import re
import stat

import tacit
from tacit.deploy.conduct import GAUGES, STATUS
from tacit.deploy.trust import what_leaves
from tacit.gauges import Gauge, as_text, write_gauges
from tests.deploy.asked import agreed, federation_of
from tests.deploy.runs import run

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\\n])*"(,[a-z_]+="(\\.|[^"\\\n])*")*\})? \S+')


def test_each_line_is_of_the_text_format():
    labels = {"name": 'a "b"\\\nc'}
    made = as_text([Gauge("a", "x\ny", 1.5, labels), Gauge("a", "x\ny", 2, counts=True)])
    assert made.endswith("\n") and made.count("# TYPE a gauge") == 1
    values = [line for line in made.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in values) and len(values) == 2
    assert values[0] == 'a{name="a \\"b\\"\\\\\\nc"} 1.5'


def test_what_is_not_a_number_is_left_out():
    assert as_text([Gauge("a", "", None), Gauge("b", "", math.nan), Gauge("c", "", math.inf)]) == ""


def numbers(folder):
    lines = (folder / GAUGES).read_text().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.split("{")[0]: float(value) for name, value in pairs}


def test_a_coordinator_writes_what_is_public_and_the_same_whatever_the_rows_are(tmp_path):
    federation, found = federation_of(3), []
    for place in (tmp_path / "a", tmp_path / "b"):
        done, _ = run(agreed(federation), federation, place)
        found.append(numbers(place / "coordinator"))
        mode = (place / "coordinator" / GAUGES).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
        assert found[-1]["tacit_coordinator_epsilon"] == done.guarantee.epsilon
        federation.train.x.mul_(-3)
        federation.train.y.add_(7)
    first, second = ({k: v for k, v in one.items() if "seconds" not in k} for one in found)
    assert first == second
    assert first["tacit_coordinator_round"] == first["tacit_coordinator_rounds"] == 3
    assert first["tacit_coordinator_releases"] == 3 and first["tacit_coordinator_over"] == 1
    assert first["tacit_coordinator_silos_answered"] == first["tacit_coordinator_silos"] == 3


def test_an_epsilon_of_noise_from_a_seed_is_not_written(tmp_path):
    federation = federation_of(2)
    run(agreed(federation, seed=1, rounds=1), federation, tmp_path)
    assert "tacit_coordinator_epsilon" not in numbers(tmp_path / "coordinator")


def test_an_epsilon_that_promises_nothing_is_marked_wherever_it_is_shown(tmp_path):
    """Status, account and log of a seeded run said so much was spent, and of what."""
    federation = federation_of(2)
    large = tacit.Privacy(noise=2.0, delta=0.9, large_delta=True)
    for number, (more, mark) in enumerate(
        [({"seed": 1}, "reproducible, not private"), ({"privacy": large}, "not private: δ is")]
    ):
        place = tmp_path / str(number)
        terms = agreed(federation, rounds=1, **more)
        run(terms, federation, place)
        assert "tacit_coordinator_epsilon" not in numbers(place / "coordinator")
        status = json.loads((place / "coordinator" / STATUS).read_text())
        assert mark in status["meaning"] and status["epsilon"] is not None
        logs = [path.read_text(encoding="utf-8") for path in place.glob("*/log.txt")]
        silos = [said for said in logs if "ε=" in said and "spent" in said]
        assert silos and all(mark in said for said in silos)
        assert any("not private" in line for line in what_leaves(terms))


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "x.prom"
    for value in (1.0, 2.0):
        write_gauges(path, [Gauge("a", "about", value)])
    assert "a 2.0\n" in path.read_text() and "a 1.0" not in path.read_text()
    assert [one.name for one in tmp_path.iterdir()] == ["x.prom"]
