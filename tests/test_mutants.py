"""What `benchmarks/mutants.py` names is there: what has moved would be tried no more, unnoticed."""

from __future__ import annotations

import pytest
from benchmarks.mutants import EXPLAINED, ROOT, SOURCE, TARGETS


@pytest.mark.parametrize("module", TARGETS)
def test_a_module_and_its_tests_are_there(module):
    assert (ROOT / SOURCE / module).is_file()
    assert [name for name in TARGETS[module] if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.parametrize("explained", EXPLAINED)
def test_a_line_that_is_explained_is_there(explained):
    module, change = explained.split(": ", 1)
    lines = (ROOT / SOURCE / module).read_text(encoding="utf-8").splitlines()
    assert any(change.startswith(f"{line.strip()}: ") for line in lines)
