"""The access file: read by its owner alone, whole or not at all."""

from __future__ import annotations

import os
import stat

from headway.access._authorizer import Access
from headway.access._document import read_access
from headway.errors import ManifestError, Problem

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def load_access(path: str | os.PathLike[str]) -> Access:
    """What an access file says. To read a changed file again, load it again and ``Authorizer.replace`` what was.

    Raises ManifestError with all of its problems, or when others than its owner may read or change it (what they
    put there would let them in); OSError when it can't be read.
    """
    source = os.fspath(path)
    with open(path, "rb") as file:
        # Asked of what is open, not of the path, which may be another file by then.
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        # Elsewhere these bits say nothing.
        if os.name == "posix" and mode & _OTHERS:
            message = f"others than its owner can reach this file (mode {mode:04o}): chmod 600 {source}"
            raise ManifestError([Problem(source, 1, 1, "", message)])
        content = file.read()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode().split("\n")
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise ManifestError([Problem(source, len(before), len(before[-1]) + 1, "", message)]) from error
    return read_access(text, source=source)
