"""What a server must not forget when it is started again: its secret, and the jobs it began.

<name>.secret   32 bytes that its noise is drawn from: the same job has the same noise, always
<name>.jobs     the digest of every job that counts, one a line; the file only ever grows, and each
                agreement has its own

Both are beside its certificate, and made when they are first needed. A secret that is lost is not
made anew while there are jobs: noise of those would be another, if they were repeated.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from tacit.errors import TacitError
from tacit.files import create, reading, settle
from tacit.secure.net.links import SECRET_BYTES


def keep_secret(folder: Path, name: str) -> bytes:
    """This party's secret; drawn from the operating system the first time."""
    path = folder / f"{name}.secret"
    try:
        if not path.exists():
            if any(folder.glob(f"{name}*.jobs")):
                raise TacitError(
                    f"{path} is gone, and jobs were begun with it, which must not come again with "
                    "other noise: take it back from a copy, or serve another agreement from a new "
                    "folder"
                )
            temporary = path.with_name(f"{path.name}.{os.getpid()}")
            try:
                with open(create(temporary), "wb") as file:
                    file.write(os.urandom(SECRET_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)  # never over one that is there
            finally:
                temporary.unlink(missing_ok=True)
        settle(folder)  # each time: whoever made it may have died before
        found = path.read_bytes()
    except OSError as error:
        raise TacitError(
            f"{path} cannot be kept ({error.strerror}): {name} draws its noise from it, so let it "
            "write there"
        ) from None
    if len(found) != SECRET_BYTES:
        raise TacitError(
            f"{path} has {len(found)} bytes in place of {SECRET_BYTES}: take it back from a copy, "
            "or remove it when no run goes on"
        )
    return found


class Begun:
    """The jobs that a server began, by digest; on disk before they begin."""

    def __init__(self, folder: Path, name: str, agreement: str | None = None) -> None:
        self._path = folder / f"{name if agreement is None else f'{name}.{agreement}'}.jobs"
        text = ""
        if self._path.exists():
            remedy = "take it back from a copy, because it says which jobs were begun"
            with (
                reading(self._path, remedy),
                open(self._path, encoding="utf-8", errors="replace") as file,
            ):
                text = file.read()
                os.fsync(file.fileno())  # whoever wrote it may have died before it was on disk
        self._open_line = bool(text) and not text.endswith("\n")
        lines = text.split()
        # A line cut short by a crash counts, too, unless the same job came again and follows it.
        self._digests = {
            line
            for line, after in itertools.pairwise([*lines, ""])
            if line == after or not after.startswith(line)
        }

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def besides(self, digest: str) -> int:
        """How many other jobs began; a line cut short that fits this job is not counted."""
        return sum(not digest.startswith(line) for line in self._digests)

    def add(self, digest: str) -> None:
        try:
            with open(self._path, "a", encoding="utf-8", opener=_private) as file:
                if not self._digests:  # before the first line: one with lines is settled
                    settle(self._path.parent)
                file.write("\n" * self._open_line + digest + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._open_line = True  # part of this line may be there
            raise TacitError(
                f"{self._path} cannot be written ({error.strerror}), and no job begins that is not "
                "in it: let the server write there"
            ) from None
        self._open_line = False
        self._digests = {line for line in self._digests if not digest.startswith(line)} | {digest}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
