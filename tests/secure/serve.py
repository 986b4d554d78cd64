"""`tacit` with the job of these tests."""

from __future__ import annotations

from tacit.cli import main
from tacit.secure.jobs.kinds import JOBS

JOBS["add"] = "adding:AddJob"

if __name__ == "__main__":
    main()
