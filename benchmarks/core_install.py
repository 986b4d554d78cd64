"""The core install, in an empty environment: how large it is, and how long it takes to import.

`import tacit` is compared with `import torch` in the same environment, which is most of what
`tacit.train` waits for. It must take under two seconds, without Ray, Flower or numba.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("flwr", "ray", "numba")
MOST = 2.0
TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
TIMES = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pip_wheel = ("-m", "pip", "wheel", "-q", "--no-deps", "-w", place, str(ROOT))
        _run(sys.executable, *pip_wheel)
        (wheel,) = folder.glob("tacit-*.whl")
        venv.create(folder / "env", with_pip=True)
        python = str(folder / "env" / "bin" / "python")
        limits = ("-c", str(ROOT / "constraints.txt"))
        _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *limits, wheel)
        installed = list((folder / "env").rglob("*"))
        size = sum(file.stat().st_size for file in installed if file.is_file())
        print(f"wheel                {wheel.stat().st_size / 1e6:8.2f} MB")
        print(f"environment          {size / 1e6:8.0f} MB")
        for extra in EXTRAS:
            found = _run(python, "-c", f"import importlib.util as u; print(u.find_spec('{extra}'))")
            assert found == "None", f"{extra} is in the core install"
        times = {what: _seconds(python, what) for what in ("import tacit", "import torch", TRAIN)}
        for what, seconds in times.items():
            print(f"{what:<20} {seconds:8.2f} s")
        assert times["import tacit"] < MOST


TRAIN = "import tacit; tacit.train"


def _seconds(python: str, what: str) -> float:
    """The shortest of a few, the first of which fills the disk's cache."""
    return min(float(_run(python, "-c", TIMED.format(what))) for _ in range(TIMES))


def _run(*command: object) -> str:
    said = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if said.returncode:
        raise SystemExit(said.stderr)
    return said.stdout.strip()


if __name__ == "__main__":
    main()
