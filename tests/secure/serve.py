"""`tacit` with the job of these tests, and without torch: it starts within a blink."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

# `import tacit` brings torch, which a server does not need, and which takes seconds.
package = types.ModuleType("tacit")
package.__path__ = [str(Path(__file__).parents[2] / "src" / "tacit")]
sys.modules["tacit"] = package

importlib.import_module("tacit.secure.jobs").JOBS["add"] = "adding:AddJob"

if __name__ == "__main__":
    importlib.import_module("tacit.cli").main()
