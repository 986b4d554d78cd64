"""`tacit certificates` and `tacit server`: a consortium whose servers are processes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import OPTION, names
from tacit.errors import TacitError
from tacit.secure.jobs.job import DEALER, server_name
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.daemon import Daemon
from tacit.secure.net.process import speed_up_process

Folder = Annotated[Path, typer.Argument(help="Where they are, or will be.")]


def certificates(
    folder: Folder,
    servers: Annotated[int, OPTION(help="Number of servers.")] = 3,
    clients: Annotated[str | None, OPTION(help="Names of clients: a,b,c.")] = None,
    days: Annotated[int, OPTION(help="How long they are valid.")] = 365,
) -> None:
    """Certificates for servers, dealer, coordinator and clients; those that exist are kept.

    Every party needs ca.pem and its own file, and nothing else of this folder.
    """
    added = make_certificates(folder, servers, names(clients) or [], days)
    print(f"{folder}: added {', '.join(added)}" if added else f"{folder}: nothing was missing")


def server(
    party: Annotated[str, OPTION(help="Which one this is: 0, 1, … or dealer.")],
    peers: Annotated[str, OPTION(help="Addresses of all servers: host:port,host:port,…")],
    certificates: Annotated[Path, OPTION(help="Folder with ca.pem and this party's file.")],
    dealer: Annotated[str | None, OPTION(help="Address of the dealer: host:port.")] = None,
    patience: Annotated[float, OPTION(help="Seconds of silence that end a job.")] = 20.0,
    consortium: Annotated[
        Path | None, OPTION(help="The consortium's file: jobs that it did not agree are refused.")
    ] = None,
    runs: Annotated[int, OPTION(help="How many runs of that consortium.", min=1)] = 1,
) -> None:
    """Run one server of a curator on shares, or its dealer, until it is stopped."""
    if party != DEALER and not party.isdecimal():
        raise TacitError(f"--party {party}: give the number of the server, or {DEALER}")
    if patience <= 0:
        raise TacitError(f"--patience {patience:g}: more than 0 seconds are needed")
    name = party if party == DEALER else server_name(int(party))
    allowed = None
    if consortium is not None:
        from tacit.deploy.agreement import Agreement  # a server that only adds needs no torch
        from tacit.deploy.servers import allowed_by

        allowed = allowed_by(Agreement.read(consortium).terms, runs)
    daemon = Daemon(
        name,
        Addresses(tuple(names(peers) or ()), dealer),
        certificates,
        patience=patience,
        allowed=allowed,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    speed_up_process()
    daemon.run()
