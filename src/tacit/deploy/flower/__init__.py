"""Flower as the engine of runs across silos: transport, node identity, TLS and scheduling are its.

    link   the coordinator's end: Flower's SuperLink inside the coordinator's process
    node   a silo's end: Flower's node inside the silo's process
    app    tacit as a Flower app (ServerApp, ClientApp), for both ends and for Flower's simulation
    hosted the same on a SuperLink and SuperNodes that people have already

Flower's own node runs whatever code the server sends it, as an app bundle. `node` asks for no
bundle: what runs at a silo is what is installed there.
"""

from __future__ import annotations

import os

from tacit.errors import TacitError

# Before anything of Flower is imported: it reads them then.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("FLWR_LOG_LEVEL", "ERROR")

try:
    import flwr  # noqa: F401
except ImportError:
    raise TacitError("runs across silos need Flower: pip install 'tacit[flower]'") from None
