"""Where logins are kept: one private file for each server, whose secrets may be in the system's keyring."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import trio

from headway.base import create_private, read_secret
from headway.errors import InvalidArgument, Unavailable

_SECRETS = ("id_token", "refresh_token")
_KEYRING = "headway"
_LOCK_PAUSE, _LOCK_PATIENCE = 0.05, 60.0
_MOST_MARGIN = 60.0


@dataclass(frozen=True)
class KeptLogin:
    """A login of a person for one server.

    Attributes:
        server: the addresses of the server, as they were given. No other server gets the token.
        obtained_at: when it was last renewed, in seconds since the epoch.
        expires_at: when its token expires.
        id_token: the token that servers accept.
        refresh_token: what renews it; empty if the issuer gave none.
    """

    server: str
    issuer: str
    client: str
    authority: str
    subject: str
    groups: tuple[str, ...]
    obtained_at: float
    expires_at: float
    id_token: str = field(repr=False)
    refresh_token: str = field(repr=False)

    @property
    def due_at(self) -> float:
        """The time at which it should be renewed: a minute before it expires, or earlier in a short life."""
        return self.expires_at - min(_MOST_MARGIN, (self.expires_at - self.obtained_at) / 4)


class Place:
    """The place of the login for one server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        """Return True if there is a login, whether or not it can be read."""
        return self.path.exists()

    def read(self) -> KeptLogin:
        """Return the login.

        Raises:
            InvalidArgument: it cannot be used. The message says how to get a new one.
            Unavailable: the keyring that has its secrets does not give them.
        """
        try:
            return _parsed(read_secret(self.path), self.path.stem)
        except PermissionError as error:
            raise InvalidArgument(str(error)) from None
        except FileNotFoundError:
            raise InvalidArgument("the login was removed: run `headway login ISSUER`") from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            # The reason could contain a part of a token.
            again = "run `headway logout`, and log in again"
            raise InvalidArgument(f"{self.path} does not contain a login that can be read: {again}") from None

    def write(self, login: KeptLogin) -> None:
        """Replace the login, so that at no time a part of it can be read. Raises Unavailable if it cannot be kept.

        The caller has the lock.
        """
        stored: dict[str, Any] = asdict(login)
        with _using_keyring() as keyring:
            if keyring is not None:
                secrets = json.dumps({name: stored.pop(name) for name in _SECRETS})
                keyring.set_password(_KEYRING, self.path.stem, secrets)
                stored["keyring"] = True
        with self._folder():
            # A process that was killed may have left one, with secrets.
            self._beside.unlink(missing_ok=True)
            try:
                with open(create_private(str(self._beside)), "w", encoding="utf-8") as file:
                    json.dump(stored, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(self._beside, self.path)
            except BaseException:
                self._beside.unlink(missing_ok=True)
                raise

    def forget(self) -> None:
        """Remove the login, even one that cannot be read. Raises Unavailable if it cannot be removed."""
        with self._folder():
            self.path.unlink(missing_ok=True)
            self._beside.unlink(missing_ok=True)
        with _using_keyring() as keyring:
            if keyring is not None and keyring.get_password(_KEYRING, self.path.stem) is not None:
                keyring.delete_password(_KEYRING, self.path.stem)

    @property
    def _beside(self) -> Path:
        return self.path.with_suffix(".new")

    @contextmanager
    def _folder(self) -> Iterator[None]:
        """Make the folder. Raises Unavailable if that, or something in the block, cannot be done with a file."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield
        except OSError as error:
            why = f"{error.strerror or error}: make it writable, or set XDG_STATE_HOME to another folder"
            raise Unavailable(f"logins cannot be kept in {self.path.parent}: {why}") from None

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Keep other processes from renewing the login while the block runs. Raises Unavailable after a minute."""
        with self._folder():
            descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = trio.current_time() + _LOCK_PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if trio.current_time() > deadline:
                        why = f"another process holds {self.path.with_suffix('.lock')}"
                        raise Unavailable(f"the login cannot be renewed: {why}") from None
                    # A blocking flock would keep its thread, and then the lock, after a Ctrl-C.
                    await trio.sleep(_LOCK_PAUSE)
            yield
        finally:
            os.close(descriptor)


class KeptLogins:
    """The logins of this user, below ``$XDG_STATE_HOME/headway/logins``."""

    def __init__(self) -> None:
        state = os.environ.get("XDG_STATE_HOME", "")
        # A relative path in the variable must be ignored, by its specification.
        base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
        self.folder = base / "headway" / "logins"

    def of(self, server: str) -> Place:
        """Return the place of the login for a server. The order of its addresses does not matter."""
        name = ",".join(sorted({each.strip().lower() for each in server.split(",")}))
        return Place(self.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json")

    def places(self) -> Iterator[Place]:
        """Yield the places of all logins."""
        if self.folder.is_dir():
            yield from map(Place, sorted(self.folder.glob("*.json")))


def _parsed(text: str, name: str) -> KeptLogin:
    stored = json.loads(text)
    if not isinstance(stored, dict):
        raise ValueError("no object")
    if stored.pop("keyring", False):
        with _using_keyring() as keyring:
            secrets = None if keyring is None else keyring.get_password(_KEYRING, name)
        if secrets is None:
            raise ValueError("the keyring does not have it")
        stored.update(json.loads(secrets))
    if set(stored) != {each.name for each in fields(KeptLogin)}:
        raise ValueError("other fields")
    stored["groups"] = tuple(stored["groups"])
    for each in ("obtained_at", "expires_at"):
        if not isinstance(stored[each], int | float) or not math.isfinite(stored[each]):
            raise ValueError("a time")
    if not all(
        isinstance(stored[each], str) for each in ("server", "issuer", "client", "authority", "subject", *_SECRETS)
    ):
        raise ValueError("a text")
    return KeptLogin(**stored)


@contextmanager
def _using_keyring() -> Iterator[Any]:
    """Yield the system's keyring, or None if there is none that this program can use.

    Raises Unavailable if the block, which only uses the keyring, fails: it may be locked.
    """
    try:
        import keyring
        import keyring.backends.fail
    except ImportError:
        yield None
        return
    try:
        found = keyring.get_keyring()
        yield None if isinstance(found, keyring.backends.fail.Keyring) or found.priority <= 0 else found
    except Exception as error:  # noqa: BLE001  # backends raise errors of their own, whose texts could have a secret
        why = f"{type(error).__name__}: unlock it, or set PYTHON_KEYRING_BACKEND=keyring.backends.null.Keyring"
        raise Unavailable(f"the system's keyring cannot be used: {why}") from None
