"""Reading the keys of issuers, and the task that keeps them.

Keys are read from a file, or by discovery over HTTPS, bounded in time and size. The task reads them when they are due,
and drops them when they are stale.
"""

from __future__ import annotations

import json
import os
import ssl
import stat
from typing import Any, NoReturn

import trio

from headway.access._authorizer import Authorizer
from headway.access._content import first_names
from headway.access._https import get, https_url
from headway.access._issuers import Issuer
from headway.access._jwks import MOST_BYTES, Keys, NoKeys, read_keys
from headway.access._key_ring import KeyRing
from headway.base import GetFailed, repr_text, safe_report, story
from headway.errors import DeclarationError, InvalidArgument
from headway.events import IssuerFailed, IssuerKeysChanged, IssuerKeysRead, Report
from headway.rpc import certificate_problem

TIMEOUT = 10.0
"""The time for one reading, in seconds: discovery and keys together."""
DISCOVERY = "/.well-known/openid-configuration"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


class KeysUnavailable(Exception):
    """The keys of an issuer cannot be read. The message says why, and names the file or the URL."""


class KeysWithdrawn(KeysUnavailable):
    """The issuer has answered, and no longer publishes a key that can be used."""


async def keys_of(issuer: Issuer) -> Keys:
    """Read the keys of an issuer. Raises KeysUnavailable."""
    if issuer.jwks_file:
        return keys_in(issuer.jwks_file)
    with trio.move_on_after(TIMEOUT):
        return await _discovered(issuer)
    raise KeysUnavailable(f"{issuer.issuer}: no complete answer within {TIMEOUT:g} s")


def keys_in(path: str) -> Keys:
    """Read the keys in a file. Raises KeysUnavailable."""
    try:
        content = trusted_content(path)
    except OSError as error:
        raise KeysUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    return _keys(content, path)


def trusted_content(path: str) -> bytes:
    """Return the content of a file whose public content grants access, and which others must not replace.

    Raises OSError, also if other users can write the file, or if it is too large.
    """
    # Opening a pipe would block the event loop.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        # Check the open file and not the path, which may refer to another file by now.
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & _OTHERS_WRITE:
            raise PermissionError(f"users other than its owner can change it: chmod 644 {path}")
        if os.name == "posix" and found.st_uid not in (os.geteuid(), _ROOT):
            raise PermissionError(f"it belongs to user {found.st_uid}, who can change it: chown {os.geteuid()} {path}")
        content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise OSError(f"it has more than {MOST_BYTES} bytes")
        return content


def context_for(authority: str) -> ssl.SSLContext:
    """Return the TLS context that trusts the authorities of a file, or the system's. Raises OSError."""
    if not authority:
        return ssl.create_default_context()
    content = trusted_content(authority).decode(errors="replace")
    try:
        return ssl.create_default_context(cadata=content)
    except (ValueError, ssl.SSLError):
        raise OSError(certificate_problem(content)) from None


def check_h11() -> None:
    """Raise DeclarationError if the library for HTTP is not installed."""
    try:
        import h11  # noqa: F401
    except ImportError as error:
        raise DeclarationError("issuers with discovery need h11: pip install 'headway[jwt]'") from error


async def _discovered(issuer: Issuer) -> Keys:
    try:
        context = context_for(issuer.authority)
    except OSError as error:
        raise KeysUnavailable(f"{issuer.authority}: {error.strerror or error}") from error
    url = issuer.issuer.rstrip("/") + DISCOVERY
    try:
        document = _object(url, await get(url, context, MOST_BYTES))
        if document.get("issuer") != issuer.issuer:
            raise KeysUnavailable(
                f"{url}: its issuer is {repr_text(document.get('issuer'))}, and the access file has {issuer.issuer!r}"
            )
        jwks_uri = document.get("jwks_uri")
        if not isinstance(jwks_uri, str) or https_url(jwks_uri) is None:
            raise KeysUnavailable(f"{url}: its jwks_uri {repr_text(jwks_uri)} must be an https:// URL")
        answer = await get(jwks_uri, context, MOST_BYTES)
    except GetFailed as error:
        raise KeysUnavailable(str(error)) from error
    return _keys(answer, jwks_uri)


def _keys(content: bytes, source: str) -> Keys:
    try:
        return read_keys(content)
    except NoKeys as error:
        raise KeysWithdrawn(f"{source}: {error}") from None
    except InvalidArgument as error:
        raise KeysUnavailable(f"{source}: {error}") from None


def _object(url: str, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise KeysUnavailable(f"{url}: the answer is not a JSON object")
    return found


async def keep_keys(
    authorizer: Authorizer, report: Report, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> NoReturn:
    """Keep the keys of all issuers of an authorizer, until canceled. An engine with `Network.access` does this itself.

    The keys of each issuer are read at the beginning, then every ``refresh_interval``, and earlier, but at most every
    10 seconds, if a token names a key that is not known. If they cannot be read, the known ones are used for
    ``stale_limit`` seconds.
    """
    keeper = _Keeper(authorizer, safe_report(report))
    authorizer.logins.keepers += 1
    task_status.started()
    try:
        while True:
            changed = authorizer.logins.replaced
            async with trio.open_nursery() as nursery:
                for ring in authorizer.logins.rings.values():
                    nursery.start_soon(keeper.keep, ring, name=f"keys of {ring.issuer.name}")
                await changed.wait()
                nursery.cancel_scope.cancel()
    finally:
        authorizer.logins.keepers -= 1


class _Keeper:
    def __init__(self, authorizer: Authorizer, report: Report) -> None:
        self._authorizer = authorizer
        self._report = report

    async def keep(self, ring: KeyRing) -> NoReturn:
        """Keep the keys of one issuer."""
        logins = self._authorizer.logins
        while True:
            wanted = logins.wanted
            now = trio.current_time()
            if ring.drop_if_stale(now):
                self._report(IssuerKeysChanged(ring.issuer.name, (), "all of them are stale", self._apply()))
            if ring.reading:
                # Another engine with the same authorizer reads them.
                await logins.read.wait()
            elif ring.due() <= now:
                await self._read(ring)
            else:
                with trio.move_on_at(min(ring.due(), now + (ring.fresh_for(now) or ring.pause))):
                    await wanted.wait()

    async def _read(self, ring: KeyRing) -> None:
        logins = self._authorizer.logins
        ring.begin(trio.current_time())
        try:
            keys = await keys_of(ring.issuer)
        except KeysUnavailable as error:
            withdrawn = isinstance(error, KeysWithdrawn) and ring.drop()
            self._failed(ring, str(error))
            if withdrawn:
                self._report(IssuerKeysChanged(ring.issuer.name, (), "all of them are withdrawn", self._apply()))
        except Exception as error:  # noqa: BLE001  # no answer of an issuer may end a running server
            self._failed(ring, story(error)[:500])
        else:
            self._loaded(ring, keys)
        finally:
            if ring.reading:
                ring.canceled()
            logins.was_read()

    def _failed(self, ring: KeyRing, why: str) -> None:
        now = trio.current_time()
        ring.failed(now)
        self._report(IssuerFailed(ring.issuer.name, why, len(ring.keys), ring.fresh_for(now)))

    def _loaded(self, ring: KeyRing, keys: Keys) -> None:
        name, changed = ring.issuer.name, not ring.keys.are(keys)
        ring.loaded(keys, trio.current_time())
        self._report(IssuerKeysRead(name, len(keys)))
        if changed:
            left_out = "; ".join(keys.left_out)[:500]
            self._report(IssuerKeysChanged(name, first_names(keys.names), left_out, self._apply()))

    def _apply(self) -> int:
        """Check everything against the keys as they are now. Return the number of streams that have ended."""
        self._authorizer.logins.forget()
        return self._authorizer.end_outdated()
