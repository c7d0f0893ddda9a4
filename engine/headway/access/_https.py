"""The URLs of issuers, and a GET of one over HTTPS. The caller bounds the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from headway.base import GetFailed, http_get

if TYPE_CHECKING:
    import ssl

_PORT = 443
# A longer one would fill the log, because each failure names its URL.
_LONGEST = 2_000


class HttpsUrl(NamedTuple):
    """The parts of an ``https://`` URL that a request needs. An address of IPv6 has no brackets in ``address``."""

    address: tuple[str, int]
    authority: str
    target: str


def https_url(text: object) -> HttpsUrl | None:
    """Return the parts of a URL, or None if it is not one for HTTPS, is too long, or has a user, a fragment or odd
    characters.
    """
    if not isinstance(text, str) or len(text) > _LONGEST or not text.isascii() or not text.isprintable() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or "#" in text or "\\" in text:
        return None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HttpsUrl((parts.hostname, _PORT if port is None else port), parts.netloc, target)


async def get(url: str, context: ssl.SSLContext, most_bytes: int) -> bytes:
    """Return the body of the answer to a GET. Raises GetFailed, whose message begins with the URL."""
    parts = https_url(url)
    if parts is None:
        raise GetFailed(f"{url[:200]}: it must be an https:// URL without a user or a fragment")
    address, authority, target = parts
    accept = "application/json"
    try:
        return await http_get(
            address, target, authority=authority, accept=accept, most_bytes=most_bytes, context=context
        )
    except GetFailed as error:
        raise GetFailed(f"{url}: {error}") from error
