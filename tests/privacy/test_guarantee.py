"""What a promise says where nothing was released, nothing was noised, or nothing holds."""

from __future__ import annotations

import dataclasses

import pytest

from tacit.errors import TacitError
from tacit.privacy import Everyone, Guarantee, Privacy, guarantee

SAME = {"tasks": 10, "sampler": Everyone(), "clip": 1.0, "seeded": False}


def test_where_nothing_leaves_a_task_nothing_is_spent():
    found = guarantee({}, channel="nothing", privacy=None, **SAME)
    assert found.epsilon == 0.0 and found.releases == 0 and found.private


def test_models_are_taken_to_stay_with_their_tasks_unless_they_are_published():
    fields = {field.name: field for field in dataclasses.fields(Guarantee)}
    assert fields["personal_is_public"].default is False
    found = guarantee({}, channel="billboard", privacy=Privacy(epsilon=1.0), **SAME)
    assert not found.personal_is_public


def test_no_noise_may_be_asked_for_and_negative_noise_may_not():
    assert Privacy(noise=0.0).noise == 0.0
    with pytest.raises(TacitError, match="zero or a positive number"):
        Privacy(noise=-1e-9)
