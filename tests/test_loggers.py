"""Loggers: every figure that no ε covers says so, TensorBoard for real, the others as they are."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

import pytest

import tacit
from tacit import PMTL, TacitError
from tacit.engine.progress import silent
from tacit.loggers import LABEL, Announced, MLflow, TensorBoard, WandB
from tests.conftest import arrays

RESULT = {
    "guarantee": {"epsilon": 1.5, "in_words": "ε=1.50, and so on"},
    "metrics": {
        "overall": {"loss": 0.5, "auc": None},
        "baselines": {"local": {"overall": {"loss": 0.75}}},
    },
    "curve": [{"round": 2}],
}


class Kept:
    def __init__(self, scores: bool = True) -> None:
        self.scores, self.events = scores, []

    def start(self, settings: Any) -> None:
        self.events.append(("start", dict(settings)))

    def log(self, figures: Any, round: int) -> None:
        self.events.append((round, dict(figures)))

    def end(self, words: Any) -> None:
        self.events.append(("end", dict(words)))


def tell(*loggers: Any) -> None:
    """A run of two rounds."""
    told = Announced(silent, loggers)
    with told.during({"method": "pmtl", "lr": 0.1, "data": {"file": "/home/me"}, "seed": None}):
        with told.rounds("pmtl", 2) as on_round:
            on_round(0, {"round": 0, "loss": 2.0, "epsilon": 0.0})
            on_round(1, {"round": 0, "loss": 2.0, "epsilon": 1.0})  # nothing was measured
            on_round(2, {"round": 2, "loss": 1.0, "epsilon": 1.5})
        told.end(RESULT)


def test_a_run_tells_its_rounds_and_its_end_with_marks():
    x, y, names = arrays(3, 2, "regression")
    federation = tacit.data.from_arrays(x, y, names)
    kept, covered = Kept(), Kept(scores=False)
    run = tacit.train(
        federation,
        PMTL(batch=None),
        privacy=tacit.Privacy(noise=2.0),
        rounds=3,
        seed=0,
        personalise="none",
        baselines=False,
        loggers=[kept, covered],
    )
    (first, settings), *rounds, (last, words) = kept.events
    assert (first, last) == ("start", "end") and settings["method"] == "pmtl"
    assert words == {"guarantee": str(run.guarantee)} and "not private" in words["guarantee"]
    assert [round for round, _ in rounds] == [0, 1, 2, 3, 3]
    for figures in (figures for _, figures in rounds):
        assert figures.keys() > {"not_private/epsilon"}  # of noise from a seed
        named = ("not_private/", "not_covered/")
        assert all(name.startswith(named) for name in figures)
    assert rounds[-1][1]["not_private/epsilon"] == run.guarantee.epsilon
    final = rounds[-1][1]["not_covered/final/loss"]
    assert final == pytest.approx(run.metrics["overall"]["loss"])
    assert all(figures.keys() == {"not_private/epsilon"} for _, figures in covered.events[1:-1])


@pytest.mark.parametrize(
    ("scale", "delta", "name"),
    [
        ("task", 1e-3, "epsilon"),
        ("pooled", 1e-3, "not_private/epsilon"),
        ("task", 0.9, "not_private/epsilon"),
    ],
)
def test_an_epsilon_that_promises_nothing_is_not_called_epsilon(scale, delta, name, tmp_path):
    x, y, names = arrays(3, 2, "regression")
    federation, kept = tacit.data.from_arrays(x, y, names, scale=scale), Kept(scores=False)
    privacy = tacit.Privacy(noise=2.0, delta=delta, large_delta=True)
    quiet = {"personalise": "none", "baselines": False, "out": tmp_path / "run"}
    run = tacit.train(federation, PMTL(), privacy=privacy, rounds=1, loggers=[kept], **quiet)
    assert {key for _, figures in kept.events[1:-1] for key in figures} == {name}
    assert run.guarantee.private == (name == "epsilon")


def test_loggers_are_told_of_the_end_of_a_run_that_fails():
    kept = Kept()
    with pytest.raises(KeyboardInterrupt), Announced(silent, [kept]).during({}):
        raise KeyboardInterrupt
    assert kept.events == [("start", {}), ("end", {})]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TensorBoard("logs"), r"pip install 'tacit\[tensorboard\]'"),
        (MLflow, r"pip install 'tacit\[mlflow\]'"),
        (WandB, "pip install wandb"),
    ],
)
def test_a_tool_that_is_not_there_is_a_sentence(make, said, monkeypatch):
    for name in ("tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TacitError, match=said):
        make()


@pytest.mark.filterwarnings("default")  # of what TensorBoard imports
def test_tensorboard_reads_what_was_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tell(TensorBoard(str(tmp_path)))
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    tags = found.Tags()
    assert set(tags["scalars"]) == {
        "epsilon",
        "not_covered/loss",
        "not_covered/final/loss",
        "not_covered/final/local/loss",
    }
    assert [(e.step, e.value) for e in found.Scalars("not_covered/loss")] == [(0, 2.0), (2, 1.0)]
    assert [e.value for e in found.Scalars("epsilon")][-1] == 1.5
    assert "guarantee/text_summary" in tags["tensors"]


class Client:
    """The client of MLflow as far as it is used, with the rules of its names and values."""

    made: Client

    def __init__(self, tracking_uri: str | None = None) -> None:
        Client.made, self.said, self.uri = self, [], tracking_uri

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return "7"

    def create_run(self, experiment_id: str, *, tags: dict[str, str]) -> Any:
        self.said.append(("run", experiment_id, tags))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r"))

    def log_param(self, run_id: str, key: str, value: Any) -> None:
        assert run_id == "r" and len(str(value)) <= 6000 and re.fullmatch(r"[/\w.\- :]+", key)
        self.said.append(("param", key, value))

    def log_metric(self, run_id: str, key: str, value: float, *, step: int) -> None:
        assert run_id == "r" and isinstance(value, float) and re.fullmatch(r"[/\w.\- :]+", key)
        self.said.append((step, key, value))

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self.said.append(("tag", key, value))

    def set_terminated(self, run_id: str, status: str) -> None:
        self.said.append(("over", status))


def test_mlflow_gets_settings_figures_and_the_promise(monkeypatch):
    tool = types.ModuleType("mlflow")
    tool.MlflowClient = Client
    monkeypatch.setitem(sys.modules, "mlflow", tool)
    tell(MLflow("mine", "file:/nowhere"))
    said = Client.made.said
    assert Client.made.uri == "file:/nowhere"
    assert said[:3] == [
        ("run", "7", {"label": LABEL}),
        ("param", "method", "pmtl"),
        ("param", "lr", "0.1"),
    ]
    assert (2, "not_covered/loss", 1.0) in said and (2, "epsilon", 1.5) in said
    assert said[-2:] == [("tag", "guarantee", "ε=1.50, and so on"), ("over", "FINISHED")]
    with pytest.raises(ValueError), Announced(silent, [MLflow()]).during({}):
        raise ValueError
    assert Client.made.said[-1] == ("over", "FAILED")


def test_wandb_gets_the_same(monkeypatch):
    said: list[Any] = []
    run = types.SimpleNamespace(
        log=lambda figures, step: said.append((step, figures)),
        summary=types.SimpleNamespace(update=said.append),
        finish=lambda exit_code: said.append(exit_code),
    )
    tool = types.ModuleType("wandb")
    tool.init = lambda **given: said.append(given) or run
    monkeypatch.setitem(sys.modules, "wandb", tool)
    tell(WandB("mine"))
    assert said[0] == {
        "project": "mine",
        "config": {"method": "pmtl", "lr": "0.1"},
        "notes": LABEL,
    }
    assert (2, {"epsilon": 1.5, "not_covered/loss": 1.0}) in said
    assert said[-2:] == [{"guarantee": "ε=1.50, and so on"}, 0]
