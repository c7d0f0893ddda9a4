"""A file whose content is read again when it has changed: a certificate, a key or a token."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from os import PathLike

_COARSEST = 2.0
"""The coarsest clock of a file system's times, in seconds."""
_MOST = 1 << 20
"""The bytes of a file that are compared. Certificates and tokens are shorter. Of a longer file, its times count too."""


class FollowedFile:
    """A file, for comparisons of its content. As long as its times show no change, it is not read.

    The times do not show a second write of equal length within one tick of the file system's clock. A file that has
    changed a moment ago is therefore read.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._times: tuple[int, ...] = ()
        self._digest = b""
        self._settled = False

    def digest(self) -> bytes | None:
        """Return a digest of the content, the mode and the owner; None for a pipe, and for a missing file."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            # A pipe can be read only once, and opening it again may block.
            return None
        # Programs can set the time of the modification back, but not that of the change of the status.
        times = (found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size)
        if times != self._times or not self._settled:
            settled = time.time() - found.st_ctime > _COARSEST
            # `chmod` and `chown` decide whether a file with a secret is accepted, so they count as changes too.
            self._digest = self._read(times, (found.st_mode, found.st_uid))
            self._times, self._settled = times, settled
        return self._digest

    def _read(self, times: tuple[int, ...], rights: tuple[int, ...]) -> bytes:
        try:
            with open(self._path, "rb") as file:
                content = file.read(_MOST)
            if len(content) == _MOST:
                content += repr(times).encode()
        except OSError:
            # Whoever uses the file is told why. It may become readable with its next change.
            content = repr(times).encode()
        return hashlib.blake2b(repr(rights).encode() + content).digest()
