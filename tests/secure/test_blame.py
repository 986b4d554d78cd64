"""Who is named when several parties of a round complain about each other."""

from __future__ import annotations

from tacit.secure.net.blame import Reports
from tacit.secure.net.links import PartyError


def reported(*blames, lost=()):
    reports = Reports(["server-0", "server-1", "server-2"])
    for reporter, party, what in blames:
        reports.add(reporter, PartyError(party, what), lost=reporter in lost)
    cause = reports.cause()
    assert isinstance(cause, PartyError)
    return cause.party, cause.what


CLOSED = "closed the connection where 'x' was expected"


def test_the_first_cause_is_where_the_blame_leads():
    chain = [("ann", "server-2", CLOSED), ("server-2", "server-0", CLOSED)]
    assert reported(*chain) == ("server-0", CLOSED)
    assert reported(*chain, ("server-0", "bob", "sent 'y'")) == ("bob", "sent 'y'")
    both = [("server-0", "bob", "sent 'y'"), ("bob", "server-0", CLOSED)]
    assert reported(*chain, *both) == reported(*reversed(both), *chain) == ("bob", "sent 'y'")
    assert reported(("server-0", "bob", CLOSED), ("bob", "server-0", CLOSED))[0] == "bob"


def test_a_process_that_is_gone_is_the_first_cause():
    gone = ("server-1", "server-1", "closed the connection where 'state' was expected")
    others = [("server-2", "server-0", "sent nothing"), ("server-0", "server-1", CLOSED)]
    assert reported(*others, gone, lost=["server-1"]) == ("server-1", CLOSED)
    assert reported(others[0], gone, lost=["server-1"]) == gone[1:]
