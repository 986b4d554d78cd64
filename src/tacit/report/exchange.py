"""A run on the exchange: who saw what, what answers gave away, who learned from whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.report import graph
from tacit.report.box import heading
from tacit.report.clients import Clients, clients
from tacit.report.matrix import heat_map
from tacit.report.page import Markup, drawing, framed, note, paragraph, text
from tacit.report.words import count, plural, share

CURATOR = (
    "Clients are the tasks of this run. In every round a client trains on its own rows and uploads "
    "its model; a curator answers each client. The curator saw every uploaded model."
)
MIXED = "Each client was answered with mixtures of others' models, without noise."
SINGLE = "Each client was answered with single models of others, as they were uploaded."
NO_PROMISE = (
    "That is no guarantee: there is no noise, and several answers together may tell more than one."
)


def section(result: Mapping[str, Any]) -> str:
    """The whole section; nothing for a run that exchanged no models."""
    found = result.get("exchange")
    if found is None:
        return ""
    if found.get("hidden"):
        return "<h2>What was exchanged</h2>" + _hidden(result, found)
    shown = clients(result)
    return (
        heading("What was exchanged", result)
        + _who_sees(result, found)
        + _given_away(result, found)
        + _similarity(result, found, shown)
        + _learning(result, found, shown)
    )


def _hidden(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Where the curator is servers that compute on shares, there is little to tell."""
    least = result["config"].get("min_peers")
    kept = (
        f" A client keeps its own model where fewer than {count(least)} others would have a say "
        f"(min_peers = {least}); the servers keep to that without learning where."
        if least is not None
        else ""
    )
    says = "Nobody saw who learned from whom"
    words = (
        f"The servers gave {plural(int(found['answers']), 'answer')}, computed on shares: models, "
        "heads, rows, similarities and weights were never put together, so this report cannot show "
        f"them either.{kept} Answers are without noise: each client learns from its own what a "
        "mixture of others' models tells."
    )
    return note(says, "amber", paragraph(words))


def _single(result: Mapping[str, Any]) -> bool:
    """Whether single models are sent, by design."""
    return result["config"].get("method") == "fedfomo"


def _who_sees(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    answers, kept = int(found["answers"]), int(found["kept_own"])
    said = [CURATOR, SINGLE if _single(result) else MIXED]
    words = [f"The curator gave {plural(answers, 'answer')}."]
    least = result["config"].get("min_peers")
    if kept and kept == answers:
        words.append(
            "In every one the client got nothing but its own model back: nobody "
            "learned from another."
        )
    elif kept:
        words.append(
            f"In {count(kept)} of them ({share(kept, answers)}) the client got nothing but its own "
            "model back."
        )
    else:
        words.append("In none of them did a client get just its own model back.")
    if kept and least is not None:
        few = "nobody else" if least == 1 else f"fewer than {count(least)} others"
        words.append(
            f"A client keeps its own model where {few} would have a say in the mixture "
            f"(min_peers = {least})."
        )
    return paragraph(" ".join(said)) + paragraph(" ".join(words))


def _given_away(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    head, gave = "<h3>What answers gave away</h3>", found["revealed"]
    if not gave["times"]:
        return head + _nothing_given_away(result, found)
    single = _single(result)
    did = "was sent" if single else "could work out"
    says = (
        f"{plural(gave['receivers'], 'client')} {'were sent' if single else 'could work out'} "
        f"models of {plural(gave['senders'], 'client')}"
    )
    times = "once" if gave["times"] == 1 else f"{count(gave['times'])} times"
    why = f"It happened {times}, counting every pair of clients in every round. " + (
        "A client that is sent a single model has it, whole."
        if _single(result)
        else "An answer that depends on one other client only, in the shared layers or in a "
        "head, is a mixture of the client's own model and that one. The client knows its own, "
        "so all that it lacks is one number: the share of each."
    )
    part = "" if single else ", or a part of it"
    lines = "".join(
        f"<li>{text(receiver)} {did} {text(sender)}’s model{part} ({plural(rounds, 'round')})</li>"
        for receiver, sender, rounds in gave["examples"]
    )
    examples = f"<p>For example:</p><ul>{lines}</ul>" if lines else ""
    return head + note(says, "red", paragraph(why) + examples + paragraph(_remedy(result)))


def _remedy(result: Mapping[str, Any]) -> Markup:
    least, method = result["config"].get("min_peers"), result["config"].get("method")
    if _single(result):
        words = (
            "FedFomo sends single models by design, and no setting changes that. FedMTL and FedAMP "
            "answer with mixtures; their setting min_peers (2 unless changed) keeps a client out "
            "of mixtures with fewer others."
        )
    elif least is not None:
        words = (
            f"This run allowed it: min_peers = {least}. With min_peers = 2, the default, a client "
            "keeps its own model rather than mix it with a single other; larger numbers ask for "
            "more."
        )
    else:
        words = (
            f"{method} has no setting against this: let more clients take part in every round. "
            "FedMTL and FedAMP have one, min_peers."
        )
    return Markup(f"<b>What helps:</b> {text(words)}")


def _nothing_given_away(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    answered = int(found["answers"]) > int(found["kept_own"])
    says = "No answer depended on one other client only" if answered else "Nothing was handed on"
    words = (
        f"Every answer mixed the models of at least two others, or of nobody else. {NO_PROMISE}"
        if answered
        else "No client was sent anything of another. The curator saw all models nevertheless."
    )
    most = _largest_share(found)
    if answered and most is not None and most > 0.5:
        part = "more than 99 %" if most > 0.99 else f"up to {100 * most:.0f} %"
        words += (
            f" In the last answers one other client alone had {part} of what a client got from "
            "others: the closer to all, the closer the answer to its model."
        )
    return note(says, "amber" if answered else "green", paragraph(words))


def _largest_share(found: Mapping[str, Any]) -> float | None:
    """The most that one other had in what a client got from others, in the last answers."""
    size = np.abs(graph.others(np.array(found["weights"], dtype=np.float64)))
    total = size.sum(axis=1)
    if not (total > 0).any():
        return None
    return float((size.max(axis=1)[total > 0] / total[total > 0]).max())


def _similarity(result: Mapping[str, Any], found: Mapping[str, Any], shown: Clients) -> str:
    if found["similarity"] is None or len(shown) < 2:
        return ""
    values = shown.ordered(found["similarity"])
    relationship = result["config"].get("method") == "mocha"
    how = (
        "Each cell is the covariance of two clients' models, as the curator learned it. Blue: they "
        "moved the same way from the common start; orange: opposite ways; pale: they have little "
        "to do with each other. On the diagonal, a client with itself, it may be beyond the scale."
        if relationship
        else "Each cell says how much of a client's heads (row) has a like in another's (column), "
        "from the layers they uploaded: 1 is the same, 0 is nothing alike. Rows and columns may "
        "differ, because the row's number of heads divides."
    )
    seen = "As the curator last saw it."
    said = [seen, how, _order(shown), _never(values), _cut(result, shown)]
    caption = " ".join(filter(None, said))
    label = "covariance" if relationship else "similarity"
    drawn, width = heat_map(values, shown, label, caption)
    return "<h3>Who is like whom</h3>" + framed(drawn, width, caption)


def _order(shown: Clients) -> str:
    if len(shown.blocks) < 2:
        return ""
    return "Clients are ordered by the heads they hold; thin lines part different sets of heads."


def _never(values: np.ndarray) -> str:
    never = int((~np.isfinite(values)).sum())
    return "Hatched: never in the same round." if never else ""


def _cut(result: Mapping[str, Any], shown: Clients) -> str:
    total = int(result["federation"]["tasks"])
    return (
        "" if len(shown) == total else f"{count(len(shown))} of {count(total)} clients are shown."
    )


def _learning(result: Mapping[str, Any], found: Mapping[str, Any], shown: Clients) -> str:
    head = "<h3>Who learns from whom</h3>"
    weights = shown.ordered(found["weights"])
    fig = graph.who_learns(weights, shown)
    if fig is None:
        return head + paragraph("In the last answers nobody got anything from another client.")
    drawn, every = graph.strongest(weights), int((graph.others(weights) != 0).sum())
    what = (
        "the models that a client was last sent; it weighs them itself"
        if _single(result)
        else "the shared layers in every client's last answer"
    )
    strong = (
        f"Only the {graph.STRONGEST} strongest arrows to each client are drawn, or a few more that "
        "are as strong."
    )
    said = [
        f"An arrow leads from a client, in its colour, to one that learns from it: {what}.",
        "Thicker is a larger weight; a client's weight on itself is left out.",
        strong if len(drawn) < every else "",
        "Dashed: pushed away." if any(weights[pair] < 0 for pair in drawn) else "",
        "Right: from how many others a client learns.",
        _cut(result, shown),
    ]
    return head + drawing(fig, "learning", " ".join(filter(None, said)))
