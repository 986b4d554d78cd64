"""Tests on a GPU machine on which nothing can be installed.

    python tests/on_gpu.py pack FOLDER --python 3.12   # here: wheels that such a machine lacks
    python tests/on_gpu.py run FOLDER                  # there: unpacks them, and tests

`make test-gpu` does the second where the machine has all that is needed. Of PyTorch, NumPy, SciPy,
scikit-learn, Matplotlib, Rich and Typer the machine has its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = (
    "engine/test_cuda.py",
    "engine/test_combine.py",
    "local/test_convolution.py",
    "local/test_descent.py",
    "local/test_fused.py",
    "privacy/test_sums.py",
)
CARRIED = [
    "absl-py",
    "annotated-types",
    "attrs",
    "cffi",
    "cryptography",
    "dm-tree",
    "dp-accounting",
    "formulaic",
    "hypothesis",
    "iniconfig",
    "mpmath",
    "narwhals",
    "packaging",
    "pandas",
    "pluggy",
    "pycparser",
    "pydantic",
    "pydantic-core",
    "pytest",
    "python-dateutil",
    "safetensors",
    "sortedcontainers",
    "typing-extensions",
    "typing-inspection",
    "wrapt",
]


def pack(folder: Path, python: str) -> None:
    """Wheels for another Python, in the versions that are installed here."""
    from importlib.metadata import version

    wanted = [f"{name}=={version(name)}" for name in CARRIED]
    how = ["--no-deps", "--only-binary=:all:", "--python-version", python, "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *how, *wanted], check=True)


def run(folder: Path | None) -> int:
    """The tests, with what was packed behind what the machine has; all files at once."""
    with tempfile.TemporaryDirectory() as place:
        for wheel in sorted(folder.glob("*.whl")) if folder is not None else ():
            zipfile.ZipFile(wheel).extractall(place)
        boot = Path(place) / "boot"
        boot.mkdir()
        (boot / "sitecustomize.py").write_text(f"import sys\nsys.path.append({place!r})\n")
        paths = [str(HERE.parent / "src"), str(HERE.parent), str(boot)]
        given = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
        written = [Path(place) / f"{Path(test).stem}.txt" for test in TESTS]
        started = [
            subprocess.Popen(
                [*command, str(HERE / test)],
                env=given,
                stdout=page.open("w"),
                stderr=subprocess.STDOUT,
            )
            for test, page in zip(TESTS, written, strict=True)
        ]
        ended = [one.wait() for one in started]
        for test, page in zip(TESTS, written, strict=True):
            print(f"{test}\n{page.read_text()}", flush=True)
        return int(any(ended))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["pack", "run"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--python", default="3.12", help="of the GPU machine")
    given = parser.parse_args()
    if given.what == "run":
        sys.exit(run(given.folder))
    if given.folder is None:
        parser.error("say where to put the wheels: python tests/on_gpu.py pack FOLDER")
    pack(given.folder, given.python)


if __name__ == "__main__":
    main()
