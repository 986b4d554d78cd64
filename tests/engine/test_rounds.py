"""Rounds ask whoever answers: here neither tasks nor silos, but a script."""

import torch

import tacit
from tacit.deploy.terms import terms_of
from tacit.engine import tasks
from tacit.engine.rounds import Billboard, Rounds, Sent
from tacit.engine.tasks import Tasks
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.privacy import Everyone
from tacit.randomness import Randomness

CPU = torch.device("cpu")
ROUNDS = 4


class Script:
    """Task k contributes k + 1 everywhere, in pieces; the last task never answers."""

    def __init__(self, course) -> None:
        self.course, self.asked, self.seen, self.told = course, [], [], None

    def ask(self, board, cohort):
        self.asked.append((board.round, cohort.tolist()))
        size = self.course.size_at(board.round)
        for task in cohort[:-1].split(2):
            sent = (1.0 + task).unsqueeze(1).expand(-1, size)
            filled = torch.cat([sent, torch.full((1, size), 1e6)])  # what fills a chunk is left out
            yield Sent(torch.cat([task, task[:1]]), filled, len(task))

    def read(self, board) -> None:
        self.seen.append(board.round)

    def look(self, *, closely):
        return {"loss": 1.0}

    def finish(self) -> bool:
        return False

    @property
    def notes(self):
        return {"seen": self.seen}

    def remember(self, notes) -> None:
        self.told = notes["seen"]


def scripted(federation, folder, **settings) -> tuple[Rounds, Script]:
    """Rounds that are made without the rows of any task."""
    method = tacit.FedAvg(lr=0.1)
    plan = Plan(method=method, rounds=ROUNDS, cohort=1.0, seed=0)
    elsewhere = terms_of(federation, plan).federation()
    assert not any(len(elsewhere.part(part).y) for part in ("train", "validation", "test"))
    model, made = model_of("linear", elsewhere, 0), []

    def engine(course, federation, store):
        made.append(Script(course))
        return Rounds(Billboard(course, made[0]), store, **settings)

    plan = Plan(method=method, rounds=ROUNDS)
    rounds = simulation_of(
        plan, elsewhere, model, Everyone(), Randomness.of(0), CPU, folder, engine
    )
    return rounds, made[0]


def test_rounds_publish_the_mean_of_whatever_was_sent(make_federation, tmp_path):
    federation = make_federation(tasks=6)
    rounds, script = scripted(federation, tmp_path)
    start, course = rounds.board, rounds.course
    rounds.run()
    mean = torch.full((course.size_at(0),), sum(range(1, 6)) / 6)  # who is silent counts as zeros
    expected = start
    for round in range(ROUNDS):
        tensors = course.method.publish(expected, mean)
        expected = tacit.methods.Board(tensors, round + 1)
    for name, value in expected.tensors.items():
        assert torch.allclose(rounds.board[name], value, atol=1e-5)
        assert not torch.equal(value, start[name])
    assert script.asked == [(round, [0, 1, 2, 3, 4, 5]) for round in range(ROUNDS)]
    assert script.seen == [1, 2, 3, 4]


def test_rounds_go_on_where_they_were_saved_and_ask_only_for_the_rest(make_federation, tmp_path):
    federation = make_federation(tasks=6)
    whole, _ = scripted(federation, tmp_path / "whole")
    whole.run()
    part, _ = scripted(federation, tmp_path / "part", careful=True)
    for _ in range(3):
        part.publish(part.next_board())
        part.save()
    part.publish(part.next_board())  # and a crash: this round was never saved
    drawn = []
    again, script = scripted(federation, tmp_path / "part", draw=lambda t: drawn.append(t) or EVERY)
    again.resume()
    assert again.board.round == 3 and script.told == [1, 2, 3] and script.seen == [3]
    again.run()
    assert drawn == [3] and script.asked == [(3, [0, 1, 2, 3, 4, 5])]
    for name, value in whole.board.tensors.items():
        assert torch.equal(again.board[name], value)


EVERY = torch.arange(6)


def test_tasks_answer_for_themselves_without_rounds(make_federation):
    """As at a silo: client steps and models from a billboard that somebody else made."""
    federation, method = make_federation(tasks=6), tacit.FedAvg(lr=0.1)
    model = model_of("linear", federation, 0)
    plan = Plan(method=method, rounds=ROUNDS)
    tasks = simulation_of(plan, federation, model, Everyone(), Randomness.of(0), CPU, engine=Tasks)
    run = tacit.train(
        federation, method, model="linear", rounds=1, seed=0, baselines=False, personalise="none"
    )
    sent = list(tasks.ask(tasks.board, EVERY))
    assert [len(some.vectors) for some in sent] == [1] * 6 and not hasattr(tasks, "rounds")
    tasks.read(run.simulation.board)
    assert torch.equal(tasks.personal(EVERY)[0], run.simulation.personal(EVERY)[0])


def test_the_curve_is_drawn_from_few_rows_unless_the_end_hangs_on_it(make_federation, monkeypatch):
    federation, looked = make_federation(tasks=12), []

    def measure(self, part, some=None, *given, **named):
        looked.append(12 if some is None else len(some))
        return whole(self, part, some, *given, **named)

    whole = Tasks.measure
    monkeypatch.setattr(Tasks, "measure", measure)
    monkeypatch.setattr(tasks, "GLANCE", 100)
    plain = {"rounds": 2, "personalise": "none", "baselines": False, "seed": 0}
    hasty = tacit.train(federation, tacit.FedAvg(), **plain)
    assert max(looked[:3]) < 12 == looked[3]  # two rounds and the beginning; then the result
    looked.clear()
    patient = tacit.train(federation, tacit.FedAvg(), patience=5, **plain)
    assert looked == [12] * 4
    assert hasty.metrics["overall"] == patient.metrics["overall"]
