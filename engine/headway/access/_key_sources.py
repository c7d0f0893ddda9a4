"""Reading the keys of an issuer: from a file, or by discovery over HTTPS, bounded in time and size."""

from __future__ import annotations

import json
import os
import ssl
import stat
from typing import Any

import trio

from headway.access._https import get, https_url
from headway.access._issuers import Issuer
from headway.access._jwks import MOST_BYTES, Keys, NoKeys, read_keys
from headway.base import GetFailed, repr_text
from headway.errors import DeclarationError, InvalidArgument
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
