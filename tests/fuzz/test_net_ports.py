"""Whatever the first bytes are, a port hangs up and is there for the next one."""

from __future__ import annotations

import pytest

from tests.fuzz.net_ports import PORTS, hunt_port


@pytest.mark.parametrize("name", PORTS)
def test_some_changed_first_bytes(name, tmp_path):
    hunt_port(name, tmp_path, cases=40)


@pytest.mark.slow
def test_a_coordinator_that_sends_bad_jobs_fills_no_log(tmp_path):
    """`hunt_port` counts the lines."""
    hunt_port("server-frames", tmp_path, cases=400)


@pytest.mark.slow
@pytest.mark.parametrize("name", PORTS)
def test_a_minute_of_changed_first_bytes(name, tmp_path):
    print(name, hunt_port(name, tmp_path, seconds=60, seed=1))
