"""The files of the page. They are read once, and found by their names alone: no request names a path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from headway.http import HEADERS

_POLICY = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
    *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    # No script can make markup of a text, even by mistake.
    *("require-trusted-types-for 'script'", "trusted-types 'none'"),
)
_HEADERS: Mapping[str, str] = {
    **HEADERS,
    "cache-control": "no-cache",
    "content-security-policy": "; ".join(_POLICY),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


class Assets:
    """The files of the page by name."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for each in files("headway.page").joinpath("assets").iterdir():
            kind = _TYPES.get(f".{each.name.rpartition('.')[2]}")
            if kind is not None:
                content = each.read_bytes()
                self._files[each.name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    def answer(self, name: str, request: Request) -> Response | None:
        """Return the answer to a request for a file, or None if no file has this name."""
        found = self._files.get(name)
        if found is None:
            return None
        content, kind, tag = found
        headers = {**_HEADERS, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(content, 200, headers, kind)
