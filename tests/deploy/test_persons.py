"""Persons as the unit of privacy across silos: the models of the simulation, and who sees what."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch

import tacit
from tacit.data.persons import FOUND
from tacit.data.reading import read_table
from tacit.data.survival import cells
from tacit.deploy.agreement import Agreement
from tacit.deploy.conduct import conduct
from tacit.deploy.flower.as_silo import run_silo
from tacit.deploy.personal import keep_personal, predict_rows
from tacit.deploy.silo import Silo
from tacit.deploy.site import Site
from tacit.deploy.table import check, own_rows
from tacit.deploy.terms import terms_of
from tacit.deploy.trust import what_leaves
from tacit.engine.persons import Persons
from tacit.engine.progress import silent
from tacit.errors import TacitError
from tacit.experiment.auto import choose
from tacit.experiment.models import SavedModels
from tacit.experiment.plan import Plan
from tacit.privacy.subtotal import subtotal
from tacit.report.silo import page
from tacit.secure.net.remote import Remote
from tests.deploy.asked import Asked, run_name
from tests.deploy.direct import Direct, personal, silos_of
from tests.deploy.on_shares import SERVERS, Kept, Shown

NOISY = tacit.Privacy(noise=1.5, unit="person", persons=60)


def federation_of(tasks=3, each=20, rows=2):
    """Persons with several rows each."""
    rng = np.random.default_rng(0)
    count = tasks * each * rows
    x = rng.normal(size=(count, 3))
    y = (x @ [1.0, -1.0, 0.5] + rng.normal(size=count) > 0).astype(int)
    persons = [f"p{row // rows}" for row in range(count)]
    names = np.repeat([f"task-{k}" for k in range(tasks)], each * rows)
    return tacit.data.from_arrays(x, y, names, scale="none", persons=persons)


@pytest.fixture(scope="module")
def federation():
    return federation_of()


def agreed(federation, method, **settings):
    plan = Plan(method=method, personalise="none", **({"cohort": 1.0} | settings))
    return terms_of(federation, choose(federation, plan).plan)


MADE = {
    "mixed": "mixed",
    "additive": "additive",
    "fedavg": tacit.FedAvg(local_steps=3, batch=1, lr=0.1),
    "gradients": tacit.FedAvg(local_steps=1, batch=None, lr=0.1),
    "fedprox": tacit.FedProx(local_steps=2, batch=None, lr=0.1),
    "ditto": tacit.Ditto(local_steps=1, batch=None, lr=0.1),
    "pmtl": tacit.PMTL(local_steps=2, batch=None, lr=0.1),
    "clusters": tacit.Clusters(local_steps=2, batch=None, lr=0.1),
}


@pytest.mark.parametrize("noise_by", ["curator", "task"])
@pytest.mark.parametrize("method", MADE)
def test_silos_end_like_the_simulation(federation, method, noise_by, tmp_path):
    privacy = dataclasses.replace(NOISY, noise_by=noise_by)
    made = MADE[method]
    settings = {"privacy": privacy, "seed": 3, "rounds": 3}
    settings |= {} if isinstance(made, str) else {"cohort": 0.5}
    run = tacit.train(federation, made, personalise="none", baselines=False, **settings)
    terms = agreed(federation, made, **settings)
    silos = silos_of(federation, terms, tmp_path)
    done = conduct(terms, tmp_path / "coordinator", Direct(silos))
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, run.models(torch.arange(3))[0], atol=2e-5)
    assert done.guarantee.epsilon == run.guarantee.epsilon and done.guarantee.unit == "person"
    work = silos[0].latest()
    assert work is not None and "of one person" in str(work.spent)
    log = (silos[0].folder / "log.txt").read_text(encoding="utf-8")
    assert log.count("a sum over bounded persons") == 3
    assert ("this silo's own noise" in log) == (noise_by == "task")


@pytest.mark.parametrize("method", ["mixed", "fedavg", "pmtl"])
def test_shares_end_like_one_machine(federation, method, tmp_path, monkeypatch):
    """Hardly any noise: servers draw other noise than one machine. (`test_persons_processes` gives
    the simulation what server processes drew.)"""
    privacy = dataclasses.replace(NOISY, noise=1e-5)
    made = {"fedavg": tacit.FedAvg(lr=0.1), "pmtl": tacit.PMTL(lr=0.1)}.get(method, method)
    settings = {"privacy": privacy, "rounds": 3}
    quiet = {"personalise": "none", "baselines": False}
    plain = tacit.train(federation, made, seed=3, **quiet, **settings)
    simulated = tacit.train(federation, made, seed=3, curator=SERVERS, **quiet, **settings)
    expected = plain.models(torch.arange(3))[0]
    assert torch.allclose(simulated.models(torch.arange(3))[0], expected, atol=2e-3)
    terms = agreed(federation, made, curator=SERVERS, **settings)
    ways = [Kept(name) for name in terms.silos]
    silos = silos_of(federation, terms, tmp_path)
    for silo, way in zip(silos, ways, strict=True):
        silo._servers = way
    servers = Shown(ways)
    monkeypatch.setattr(Remote, "of", lambda settings: servers)
    done = conduct(terms, tmp_path / "coordinator", Direct(silos), servers=SERVERS)
    key = done.coordination.course.randomness.run_key
    expected = tacit.train(federation, made, seed=key, **quiet, **settings)
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, expected.models(torch.arange(3))[0], atol=2e-3)
    # A silo's sum is longer than one clip, and within the ring.
    job, integers = ways[0].handed[-1]
    assert np.abs(integers).max() <= job.most and job.members == 4 * 60
    assert any(np.linalg.norm(secret) > job.bound for job, secret in ways[0].handed)


def test_silos_tell_of_the_clip_for_those_alone_whom_they_drew(federation, tmp_path):
    """All others said that they were within the clip: it shrank, whatever anybody sent."""
    method = tacit.FedAvg(lr=0.1, local_steps=1, batch=None, clip=0.05, clip_quantile=0.9)
    settings = {"privacy": NOISY, "seed": 3, "rounds": 4, "cohort": 0.3}
    quiet = {"personalise": "none", "baselines": False}
    run = tacit.train(federation, method, **quiet, **settings)
    terms = agreed(federation, method, **settings)
    done = conduct(terms, tmp_path / "c", Direct(silos_of(federation, terms, tmp_path)))
    found = done.coordination.course.channel.clip
    assert found == pytest.approx(run.simulation.channel.clip, rel=1e-9) and found != method.clip


def test_what_a_silo_draws_and_adds_nobody_else_knows(federation, tmp_path):
    """Without a seed the coordinator's key decides neither who is drawn nor the noise."""
    sent = []
    terms = agreed(federation, tacit.FedAvg(), privacy=NOISY, rounds=2, cohort=0.5)
    for number in range(2):
        silo = Asked(terms, federation, tmp_path / str(number))
        sent.append(silo.ask(key=7, run=run_name(1)).tensors["sent"])
        assert torch.equal(silo.ask(key=7, run=run_name(1)).tensors["sent"], sent[-1])
    assert sent[0].dtype == torch.int64 and not torch.equal(*sent)
    noisy = dataclasses.replace(NOISY, noise_by="task")
    terms = agreed(federation, tacit.FedAvg(), privacy=noisy, rounds=2)
    for number in range(2, 4):
        silo = Asked(terms, federation, tmp_path / str(number))
        sent.append(silo.ask(key=7, run=run_name(1)).tensors["sent"])
    assert not torch.equal(*sent[2:])


def test_a_silo_refuses_to_stay_out_of_a_round(federation, tmp_path):
    terms = agreed(federation, tacit.FedAvg(), privacy=NOISY, rounds=2, cohort=0.5)
    Asked(terms, federation, tmp_path).sees_refused("in every round", takes_part=False)


def test_what_cannot_be_is_refused_before_work(federation):
    terms = agreed(federation, tacit.FedAvg(), privacy=NOISY, rounds=2)
    with pytest.raises(TacitError, match="leave metrics out"):
        dataclasses.replace(terms, metrics=True)
    noisy = dataclasses.replace(NOISY, noise_by="task")
    with pytest.raises(TacitError, match="servers add the noise"):
        tacit.train(federation, tacit.FedAvg(), privacy=noisy, curator=SERVERS, rounds=1, seed=0)


def test_the_draws_of_a_person_do_not_move_when_another_leaves(federation):
    """Shuffles were by a person's place in its task: all that followed one who left changed."""

    def contributions(made):
        method = tacit.FedAvg(local_steps=3, batch=1, lr=0.3)
        run = tacit.train(
            made, method, rounds=1, seed=0, privacy=NOISY, personalise="none", baselines=False
        )
        tasks, board = run.simulation.tasks, run.simulation.course.start
        asked = Persons(tasks)
        sent = list(asked.contribute(board, asked.course.public(board), torch.arange(3)))
        return torch.cat([some.vectors[: some.count] for some in sent])

    first = federation.train.persons == federation.train.persons[0]
    fewer = dataclasses.replace(federation, train=federation.train.where(~first))
    whole, left = contributions(federation), contributions(fewer)
    assert len(whole) == len(left) + 1
    apart = (left.unsqueeze(1) - whole).abs().amax(dim=2)
    assert apart.amin(dim=1).max() < 1e-6  # everybody else sends the same


FILE = """
[consortium]
name = "heart"
silos = ["north", "south"]
[data]
target = "disease"
kind = "binary"
labels = ["0", "1"]
[data.columns]
age = {{ range = [0, 120], scale = [55, 10], gaps = true }}
sex = {{ flag = true }}
[privacy]
epsilon = 4.0
unit = "{unit}"
persons = 100
noise_by = "task"
"""


@pytest.mark.parametrize("unit", ["person", "row"])
def test_a_silo_prepares_each_row_without_the_others(unit, tmp_path):
    (tmp_path / "consortium.toml").write_text(FILE.format(unit=unit), encoding="utf-8")
    terms = Agreement.read(tmp_path / "consortium.toml").terms
    assert terms.make_privacy() == tacit.Privacy(
        epsilon=4.0, unit=unit, persons=100, noise_by="task"
    )
    assert any("this silo adds the noise itself" in line for line in what_leaves(terms))
    assert any(f"any one {unit} is in this silo's table" in line for line in what_leaves(terms))
    lines = [f"p{k // 2},{30 + k if k % 5 else ''},{k % 2},{k // 3 % 2}" for k in range(40)]
    column = "patient" if unit == "person" else None

    def prepared(rows):
        path = tmp_path / "table.csv"
        path.write_text("\n".join(["patient,age,sex,disease", *rows]), encoding="utf-8")
        assert not check(terms, "north", path, column).problems
        own = own_rows(terms, "north", path, column)
        assert own.persons is not None
        return {part: {tuple(row) for row in own.parts[part][0].tolist()} for part in own.parts}

    every, fewer = prepared(lines), prepared(lines[2:])  # one person less, or two rows
    assert all(fewer[part] <= every[part] for part in every)
    assert (0.0, 1.0, 0.0) in set().union(*every.values())  # a gap is the centre that was agreed
    wrong = None if unit == "person" else "patient"
    with pytest.raises(TacitError, match=f"protect every {unit}, so in silo.toml"):
        own_rows(terms, "north", tmp_path / "table.csv", wrong)


def test_a_silo_with_more_persons_than_were_agreed_on_stays_away(tmp_path):
    """δ follows from how many there are said to be; a silo knows better, and says so to its own."""
    agreed = FILE.format(unit="row").replace("persons = 100", "persons = 10")  # δ = 0.001
    (tmp_path / "consortium.toml").write_text(agreed, encoding="utf-8")
    (tmp_path / "silo.toml").write_text(
        'name = "north"\ndata = "table.csv"\ncoordinator = "127.0.0.1:1"\n', encoding="utf-8"
    )
    site = Site.open(tmp_path)

    def write(rows):
        lines = [f"{30 + k / 100},{k % 2},{k // 3 % 2}" for k in range(rows)]
        site.table.write_text("\n".join(["age,sex,disease", *lines]), encoding="utf-8")
        return check(site.terms, "north", site.table).problems

    assert not write(1200)  # 960 or so to train on
    (problem,) = write(3000)
    assert "more rows than persons=10 says" in problem and problem.count(". ") == 0
    with pytest.raises(TacitError, match="more rows than persons=10 says"):
        run_silo(tmp_path, once=True)
    assert not (tmp_path / "runs").exists() and not (tmp_path / "log.txt").exists()


OVER_TIME = """
[consortium]
name = "registry"
silos = ["north", "south", "west"]
[data]
target = "days"
kind = "survival"
event = "died"
cuts = [100, 200, 400]
[data.columns]
age = { range = [0, 120], scale = [55, 10] }
old = { flag = true }
[method]
name = "mixed"
[privacy]
epsilon = 8.0
unit = "row"
persons = 120
[run]
seed = 2
"""


def registry(folder):
    """Tables of three silos, with times and events."""
    rng, tables = np.random.default_rng(0), {}
    for name in ("north", "south", "west"):
        age = rng.normal(55, 10, 60).clip(20, 90).round(1)
        days, died = rng.exponential(2000 / (age - 15), 60), rng.random(60) < 0.6
        lines = [
            f"{a},{int(a > 60)},{t:.2f},{int(e)}" for a, t, e in zip(age, days, died, strict=True)
        ]
        tables[name] = folder / f"{name}.csv"
        tables[name].write_text("\n".join(["age,old,days,died", *lines]), encoding="utf-8")
    return tables


@pytest.mark.slow
def test_silos_agree_on_outcomes_over_time(tmp_path):
    """What a silo makes of its table, the models of the simulation, and what its page says."""
    path, tables = tmp_path / "consortium.toml", registry(tmp_path)
    path.write_text(OVER_TIME, encoding="utf-8")
    terms = Agreement.read(path).terms
    assert terms.outputs == 3 and terms.labels == ("100", "200", "400")
    assert type(terms).from_json(terms.to_json()) == terms
    assert not any(check(terms, name, table).problems for name, table in tables.items())
    own = {k: own_rows(terms, name, tables[name]) for k, name in enumerate(terms.silos)}
    seen = torch.cat([y for _, y in own[0].parts.values()])
    table = np.loadtxt(tables["north"], delimiter=",", skiprows=1)
    made = cells(table[:, 2], table[:, 3] > 0, (100, 200, 400)).astype(np.float32)
    assert sorted(map(str, seen.tolist())) == sorted(map(str, made.tolist()))
    federation = dataclasses.replace(terms.federation(own), preprocessing=own[0].preprocessing)
    run = tacit.train(
        federation,
        terms.make_method(),
        rounds=terms.rounds,
        privacy=terms.make_privacy(),
        seed=2,
        personalise="none",
        baselines=False,
    )
    silos = []
    for task, name in enumerate(terms.silos):
        (tmp_path / name).mkdir()
        silos.append(Silo(terms, name, own[task], tmp_path / name))
    conduct(terms, tmp_path / "coordinator", Direct(silos))
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, run.models(torch.arange(3))[0], atol=2e-5)
    work = silos[0].latest()
    assert work is not None
    report = keep_personal(work, silos[0].own, "none", silos[0].folder, silent)
    assert report["score"] == "concordance" and "concordance" in page(report, [])
    values, _ = predict_rows(silos[0].folder, read_table(tables["north"]))
    assert values.shape == (60, 4)  # a risk, and survival at three times
    assert ((values[:, 1:] >= 0) & (values[:, 1:] <= 1)).all()


def test_an_agreement_on_outcomes_over_time_is_checked(tmp_path):
    path, tables = tmp_path / "consortium.toml", registry(tmp_path)

    def read(*change):
        path.write_text(OVER_TIME.replace(*change), encoding="utf-8")
        return Agreement.read(path).terms

    for change, words in (
        (('event = "died"', ""), "needs a column that says whether the event"),
        (("[100, 200, 400]", "[100, 50]"), "positive numbers that rise"),
        (('kind = "survival"', 'kind = "count"\nrange = [0, 9]'), "event is for kind 'survival'"),
        (("old = {", "died = {"), "is a target"),
    ):
        with pytest.raises(TacitError, match=words):
            read(*change)
    terms, table = read("", ""), tables["north"]
    text = table.read_text(encoding="utf-8")
    first = text.splitlines()[1]
    for cells_, words in (
        ("50,0,-3,1", "is a time below 0 in 1 row"),
        ("50,0,30,2", "neither 0 nor 1"),
        ("50,0,,1", "'days' is empty"),
    ):
        table.write_text(text.replace(first, cells_), encoding="utf-8")
        (problem,) = check(terms, "north", table).problems
        assert words in problem
    table.write_text(re.sub(r",1$", ",0", text, flags=re.MULTILINE), encoding="utf-8")
    (warning,) = check(terms, "north", table).warnings
    assert "'died' has no event" in warning


@pytest.mark.parametrize("method", ["mixed", "fedavg"])
def test_the_page_of_a_silo_speaks_of_its_persons(federation, method, tmp_path):
    terms = agreed(federation, method, privacy=NOISY, rounds=2)
    silos = silos_of(federation, terms, tmp_path)
    conduct(terms, tmp_path / "coordinator", Direct(silos))
    work = silos[0].latest()
    assert work is not None
    report = keep_personal(work, silos[0].own, "none", silos[0].folder, silent)
    text = page(report, [])
    assert "how much may be learned about any one person of this silo" in text
    assert "sums over persons, each of length" in text and "of one person" in text
    assert "protects each person from everybody outside its silo" in report["guarantee"]["in_words"]


def test_more_persons_than_there_is_room_for_do_not_wrap_around(federation, tmp_path):
    """Two persons were thought to be there: sums hold eight at each silo, and none sends more."""
    privacy = dataclasses.replace(NOISY, noise=1e-5, persons=2)
    terms = agreed(federation, tacit.FedAvg(), privacy=privacy, rounds=2, curator=SERVERS)
    work = silos_of(federation, terms, tmp_path)[0]._open_work
    (tmp_path / "runs").mkdir()
    made = work(tmp_path / "runs" / "one", {"key": 1, "noise": 1e-5, "terms": terms.digest})
    grid, size = made._grid_at(0), 4
    alike = [(torch.ones(50, size), torch.zeros(50, dtype=torch.int64), 50)] * 3
    total = subtotal(made.channel, "task-0", 0, size, grid, alike)
    assert total.tolist() == [8 * grid.steps] * size
    assert 3 * 8 * grid.steps < 2 ** (grid.bits - 1)


def test_a_sum_that_no_silo_has_is_not_taken(federation, tmp_path):
    def answered(task, request, reply):
        if task != 1 or request.kind != "train":
            return reply
        return dataclasses.replace(reply, tensors={"sent": reply.tensors["sent"] + 2**61})

    terms = agreed(federation, tacit.FedAvg(), privacy=NOISY, rounds=2)
    direct = Direct(silos_of(federation, terms, tmp_path), answered=answered)
    done = conduct(terms, tmp_path / "coordinator", direct)
    assert done.coordination.asking.excluded == {"task-1": "is too long for any sum"}


def test_batchnorm_is_refused_whatever_the_number_of_persons(federation):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    privacy = dataclasses.replace(NOISY, persons=len(federation))  # as many as there are tasks
    with pytest.raises(TacitError, match="BatchNorm mixes the rows"):
        tacit.train(
            federation,
            tacit.FedAvg(),
            model=net,
            privacy=privacy,
            rounds=1,
            seed=0,
            personalise="none",
        )


def raw_rows():
    """Columns in units of their own, which nobody knows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 2)) * [300.0, 0.02] + [-1000.0, 5.0]
    y = x @ [0.01, 40.0] + rng.normal(size=240)
    names = [f"task-{k // 80}" for k in range(240)]
    return tacit.data.from_arrays(x, y, names, persons=True, split_seed=1)


def test_units_that_drown_in_noise_end_nobodys_run(tmp_path):
    """A billboard on which nobody knows a unit is as good as any other, and was paid for."""
    federation = raw_rows()
    privacy = tacit.Privacy(epsilon=0.1, delta=1e-3, unit="row", persons=150)
    settings = {"privacy": privacy, "seed": 3, "rounds": 7}
    run = tacit.train(federation, "mixed", personalise="none", baselines=False, **settings)
    assert bool(run.simulation.board.tensors["spread"].isnan().any())
    terms = agreed(federation, "mixed", **settings)
    silos = silos_of(federation, terms, tmp_path)
    done = conduct(terms, tmp_path / "coordinator", Direct(silos))
    assert len(done.finished) == 3
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, run.models(torch.arange(3))[0], atol=2e-5)


@pytest.mark.parametrize("method", ["mixed", pytest.param("ditto", marks=pytest.mark.slow)])
def test_units_that_persons_vote_for_are_found_across_silos(method, tmp_path):
    """Columns without constants: votes are rounds like any other, and what they cost is booked."""
    federation = raw_rows()
    assert federation.unscaled is not None and federation.unscaled.columns == (0, 1, -1)
    made = tacit.Ditto(lr=0.1) if method == "ditto" else method
    privacy = tacit.Privacy(epsilon=20.0, delta=1e-3, unit="row", persons=150)
    settings = {"privacy": privacy, "seed": 3, "rounds": 7}
    run = tacit.train(federation, made, personalise="none", baselines=False, **settings)
    terms = agreed(federation, made, **settings)
    assert type(terms).from_json(terms.to_json()) == terms
    silos = silos_of(federation, terms, tmp_path)
    done = conduct(terms, tmp_path / "coordinator", Direct(silos))
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, run.models(torch.arange(3))[0], atol=2e-5)
    assert str(done.guarantee).split("; ")[0] == str(run.guarantee).split("; ")[0]
    assert FOUND in done.guarantee.assumptions and done.guarantee.releases == 7
    # After a restart a silo reads the units off its last billboard, and its model keeps them.
    again = silos_of(federation, terms, tmp_path)[1]
    work = again.latest()
    assert work is not None
    keep_personal(work, again.own, "none", again.folder, silent)
    kept = SavedModels.load(again.folder / "model").federation
    expected = run.simulation.tasks.federation
    assert kept.preprocessing is not None and expected.preprocessing is not None
    assert torch.equal(kept.preprocessing.scale, expected.preprocessing.scale)
    assert abs(float(kept.preprocessing.shift[0, 0]) + 1000) < 300
    assert kept.target_scale is not None and expected.target_scale is not None
    assert torch.equal(kept.target_scale.scale, expected.target_scale.scale[1:2])


def test_a_consortium_may_agree_to_find_units(tmp_path):
    path = tmp_path / "consortium.toml"
    text = FILE.format(unit="row").replace("scale = [55, 10]", 'scale = "found"')
    path.write_text(text, encoding="utf-8")
    terms = Agreement.read(path).terms
    assert terms.unscaled == (0,) and terms.rounds == 4 + 5
    lines = [f"{30 + k if k % 5 else ''},{k % 2},{k // 3 % 2}" for k in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["age,sex,disease", *lines]), encoding="utf-8")
    own = own_rows(terms, "north", tmp_path / "table.csv")
    seen = torch.cat([x[:, 0] for x, _ in own.parts.values()])
    assert seen.isnan().sum() == 8 and set(seen[~seen.isnan()].tolist()) <= set(range(31, 70))
    path.write_text(text.replace('unit = "row"', "").replace("persons = 100", ""), encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace('noise_by = "task"', ""))
    with pytest.raises(TacitError, match="is for votes of persons"):
        Agreement.read(path)
