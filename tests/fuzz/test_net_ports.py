"""Whatever the first bytes are, a port hangs up and is there for the next one."""

from __future__ import annotations

import pytest

from tests.fuzz.net_hunt import hunt
from tests.fuzz.net_ports import PORTS


@pytest.mark.parametrize("name", PORTS)
def test_some_changed_first_bytes(name, tmp_path):
    with PORTS[name](tmp_path) as port:
        hunt(name, port.make, port.send, (), cases=40)
        assert port.works()


@pytest.mark.slow
@pytest.mark.parametrize("name", PORTS)
def test_a_minute_of_changed_first_bytes(name, tmp_path):
    with PORTS[name](tmp_path) as port:
        print(name, hunt(name, port.make, port.send, (), seconds=60, seed=1))
        assert port.works()
