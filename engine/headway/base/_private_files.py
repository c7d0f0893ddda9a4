"""Files that other users of the machine must neither read nor plant: creating them, and checking secrets."""

from __future__ import annotations

import os
import stat

OWNER_ONLY = 0o600
_OTHERS = stat.S_IRWXO | stat.S_IRWXG
_ROOT = 0


def create_private(path: str, flags: int = os.O_RDWR) -> int:
    """Create a file that only its owner may read or write, whatever the umask, and return its descriptor.

    Raises FileExistsError if anything exists at the path, even a symbolic link.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    if os.name == "posix":
        # A umask may have removed even the owner's rights.
        os.fchmod(descriptor, OWNER_ONLY)
    return descriptor


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe or a device in the place of a file that is read again, because opening it may block for ever.

    Raises:
        OSError: it is not a regular file, or is missing.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(
            f"{os.fspath(path)} is a pipe, a directory or a device now, and reading it could block the process: "
            "put a regular file in its place"
        )


def check_secret(path: str | os.PathLike[str]) -> None:
    """Check that no other user can read or replace the secret in a file. Raises PermissionError, or as `open` does.

    Symbolic links are followed, because orchestrators mount secrets through them. The file must belong to the user of
    this process or to root. A file that belongs to root may be readable by its group, because that is how root passes a
    secret to a service.
    """
    with open(path, "rb") as file:
        _check(file.fileno(), path)


def read_secret(path: str | os.PathLike[str]) -> str:
    """Return the text of a file that holds a secret. Raises the errors of `check_secret`, and UnicodeDecodeError."""
    with open(path, encoding="utf-8") as file:
        # Check the open file, because another one may be at the path by now.
        _check(file.fileno(), path)
        return file.read()


def exposure(found: os.stat_result, user: int) -> str | None:
    """Return how other users can access a secret with this status if the process runs as ``user``, or None."""
    if not stat.S_ISREG(found.st_mode):
        # The mode of a pipe or a terminal does not determine which processes read it.
        return None
    if found.st_uid not in (user, _ROOT):
        return f"belongs to user {found.st_uid}, who can replace it"
    allowed = stat.S_IRGRP if found.st_uid == _ROOT else 0
    if exposed := stat.S_IMODE(found.st_mode) & _OTHERS & ~allowed:
        verb = "change" if exposed & (stat.S_IWGRP | stat.S_IWOTH) else "read"
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, so that other users can {verb} it"
    return None


def _check(descriptor: int, path: str | os.PathLike[str]) -> None:
    # On other systems the mode has no meaning.
    if os.name == "posix" and (problem := exposure(os.fstat(descriptor), os.geteuid())):
        remedy = "chown" if problem.startswith("belongs") else "chmod 600"
        owner = f" {os.geteuid()}" if remedy == "chown" else ""
        raise PermissionError(f"{os.fspath(path)} holds a secret and {problem}: {remedy}{owner} {os.fspath(path)}")
