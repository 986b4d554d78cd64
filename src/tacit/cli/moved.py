"""Commands that are elsewhere now: each says where, for one version."""

from __future__ import annotations

import shlex

import typer

from tacit.errors import TacitError

app = typer.Typer(add_completion=False)
ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Whatever was written after the command's name is taken as it is."""


@app.command(context_settings=ANYTHING)
def reproduce(context: typer.Context) -> None:
    """Moved: run `python -m papers` in a checkout of the repository."""
    raise TacitError(
        "reproductions of papers are not installed with tacit any more: run "
        f"`{shlex.join(['python', '-m', 'papers', *(context.args or ['--list'])])}` at the root "
        "of a checkout of its repository"
    )
