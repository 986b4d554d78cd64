"""Whole runs in one process, in which one silo may misbehave."""

from __future__ import annotations

import json

import safetensors.torch
import torch

from tacit.deploy.conduct import BILLBOARD, conduct
from tacit.deploy.diary import LOG
from tests.deploy.direct import Direct, silos_of

BAD = 1
"""The task of the silo that misbehaves."""


def run(terms, federation, folder, *, one_owner=False, **hooks):
    """A whole run in this folder, and the way its silos were asked."""
    direct = Direct(silos_of(federation, terms, folder), **hooks)
    return conduct(terms, folder / "coordinator", direct, one_owner=one_owner), direct


def board(folder):
    return safetensors.torch.load_file(folder / "coordinator" / BILLBOARD)


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def log(folder):
    return (folder / "coordinator" / LOG).read_text(encoding="utf-8")


def booked(folder):
    path = folder / "coordinator" / "ledger.jsonl"
    return [json.loads(line)["round"] for line in path.read_text().splitlines()]


def bad(change, since=0):
    """Replies of one silo are changed, from a round on."""

    def answered(task, request, reply):
        if task == BAD and request.kind in ("train", "receive") and request.round >= since:
            return change(request, reply)
        return reply

    return answered


def silent(request, reply):
    return None
