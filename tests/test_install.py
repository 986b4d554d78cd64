"""The wheel, with nothing beside it but what it asks for: no Ray, no Flower, no numba."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("flwr", "ray", "numba", "cryptography", "pandas", "pyarrow", "onnx", "tensorboard")
USED = """
import json, sys
import tacit
light = sorted({name.split('.')[0] for name in sys.modules})
import numpy as np
x = np.random.default_rng(0).normal(size=(60, 2))
federation = tacit.data.from_arrays(x, x.sum(axis=1), np.arange(60) % 6)
privacy = tacit.Privacy(epsilon=2.0)
run = tacit.train(federation, privacy=privacy, seed=0, out=sys.argv[1])
run.summary_page(sys.argv[1] + '/again.html')
again = tacit.load(sys.argv[1]).predict(x[:1], ['0'])
print(json.dumps({'light': light, 'there': [n for n in sys.argv[2:] if n in sys.modules],
                  'same': bool(np.allclose(again, run.predict(x[:1], ['0'])))}))
"""


def asked_for(found: Distribution, seen: dict[str, Distribution]) -> dict[str, Distribution]:
    """What a distribution needs without extras, and what those need."""
    for line in found.requires or ():
        need = Requirement(line)
        name = need.name.lower().replace("_", "-")
        if name not in seen and (need.marker is None or need.marker.evaluate({"extra": ""})):
            seen[name] = distribution(need.name)
            extras = [one for one in need.extras if one]
            assert not extras, f"{line} asks for extras"
            asked_for(seen[name], seen)
    return seen


def test_the_core_asks_for_no_extra():
    lines = distribution("tacit").requires or ()
    core = {Requirement(line).name for line in lines if "extra ==" not in line}
    assert core.isdisjoint(EXTRAS)
    assert not set(asked_for(distribution("tacit"), {})) & {*EXTRAS, "ipython", "mlflow", "wandb"}


@pytest.mark.slow
def test_the_wheel_trains_reports_and_loads_with_its_core_alone(tmp_path):
    """Links to the core's packages stand for an empty environment: the rest cannot be imported."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps"]
    subprocess.run([*pip, "-w", str(tmp_path), str(ROOT)], check=True)
    (made,) = tmp_path.glob("tacit-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(made) as packed:
        assert not [name for name in packed.namelist() if name.startswith(("tests/", "papers/"))]
        assert "tacit/py.typed" in packed.namelist()
        packed.extractall(site)
    for found in asked_for(distribution("tacit"), {}).values():
        for file in {path.parts[0] for path in found.files or () if path.parts[0] != ".."}:
            here = Path(str(found.locate_file(file)))
            if here.exists() and not (site / file).exists():
                (site / file).symlink_to(here)
    command = [sys.executable, "-S", "-c", USED, str(tmp_path / "run"), *EXTRAS]
    alone = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, env=alone, capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["there"] == [] and found["same"]
    assert {"torch", "numpy", "matplotlib"}.isdisjoint(found["light"])
    assert (tmp_path / "run" / "report.html").exists()
