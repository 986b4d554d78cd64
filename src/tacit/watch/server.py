"""The page of one folder over HTTP: on loopback, for whoever has the token.

    http://127.0.0.1:PORT/TOKEN/              the page
    http://127.0.0.1:PORT/TOKEN/report.html   the report in the folder, once it is there

There are no other addresses. What is asked for is compared with these two and never made part of a
file's name, so nothing else of the folder, and nothing outside it, can be asked for. Nor is there
any other name for this machine: a page from elsewhere that had its own name point here would be
taken for part of this one by a browser, so who asks for such a name hears nothing.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import threading
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tacit.errors import TacitError
from tacit.report.page import POLICY
from tacit.report.silo import PAGE
from tacit.watch.folders import look
from tacit.watch.page import LIVE_POLICY, failed_page, live_page

LOOPBACK = "127.0.0.1"
HERE = (LOOPBACK, "localhost", "")
"""What this machine may be called; programs that are no browsers need not call it anything."""
PATIENCE = 10.0
"""Seconds that somebody has to send a request."""
PAUSED = "paused"


class Watch(ThreadingHTTPServer):
    """Serves one folder until `shutdown`."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        look(folder)  # a folder that nothing can be seen of is refused now
        self.folder, self.token = folder, secrets.token_urlsafe(24)
        self._one = threading.Lock()
        try:
            super().__init__((LOOPBACK, port), _Visit)
        except OSError as error:
            raise TacitError(
                f"port {port} cannot be used ({error.strerror}): give another with --port"
            ) from error

    @property
    def url(self) -> str:
        """All that somebody needs who may look."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def page(self, paused: bool) -> bytes:
        """Made for one visitor at a time: many must not slow down who works in the folder."""
        with self._one:
            try:
                report = (self.folder / PAGE).is_file()
                made = live_page(partial(look, self.folder), report=report, paused=paused)
            except TacitError as error:
                made = failed_page(str(error), paused=paused)
        return made.encode("utf-8", "replace")

    def report(self) -> bytes | None:
        """The report, if it is a file of this very folder and no link to another."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(os.open(self.folder / PAGE, flags), "rb") as file:
                regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                return file.read() if regular else None
        except OSError:
            return None


class _Visit(BaseHTTPRequestHandler):
    """One request."""

    server: Watch
    timeout = PATIENCE
    server_version, sys_version = "tacit", ""

    def do_GET(self) -> None:
        if self.headers.get("Host", "").partition(":")[0] not in HERE:
            self.send_error(HTTPStatus.FORBIDDEN, "This is not the name of a machine that is here")
            return
        path, _, query = self.path.partition("?")
        token = path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(HTTPStatus.FORBIDDEN, "The token is wrong")
            return
        if path == f"/{token}/":
            paused = query == PAUSED
            self._send(self.server.page(paused), POLICY if paused else LIVE_POLICY)
            return
        report = self.server.report() if path == f"/{token}/{PAGE}" else None
        if report is None:
            self.send_error(HTTPStatus.NOT_FOUND, "There is nothing here")
            return
        self._send(report, POLICY)

    def _send(self, page: bytes, policy: str) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(page)),
            "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",  # the address holds the token
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed: the address holds the token."""
