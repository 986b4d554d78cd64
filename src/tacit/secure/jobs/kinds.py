"""The kinds of jobs that a server knows; what they need is imported when one arrives."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from tacit.errors import TacitError
from tacit.secure.jobs.job import Job
from tacit.words import LONGEST_NAME, shortened

JOBS = {
    "sum": "tacit.secure.jobs.summing:SumJob",
    "fedmtl": "tacit.secure.jobs.fedmtl:FedMTLJob",
}
"""Kind → module and class."""


def job_from_json(described: Mapping[str, Any], registry: Mapping[str, str]) -> Job:
    """The job that `Job.to_json` described."""
    kind = described.get("kind")
    if not isinstance(kind, str) or kind not in registry:
        shown = shortened(repr(kind), LONGEST_NAME)
        raise TacitError(f"jobs of kind {shown} are not known: use one of {', '.join(registry)}")
    module, _, name = registry[kind].partition(":")
    try:
        job = getattr(importlib.import_module(module), name).from_json(described)
    except TacitError:
        raise
    except Exception as error:
        raise TacitError(
            f"the job is not understood ({shortened(str(error))}): "
            "run the same version of tacit everywhere"
        ) from None
    if not isinstance(job.id, str) or not re.fullmatch("[0-9a-f]{32}", job.id):
        shown = shortened(repr(job.id), LONGEST_NAME)
        raise TacitError(f"{shown} cannot be the id of a job: 32 hexadecimal digits are needed")
    return job
