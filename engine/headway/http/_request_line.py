"""The target of a request, as an application gets it."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

# A client of a proxy names the whole address (RFC 9112, section 3.2.2).
_ABSOLUTE = re.compile(rb"https?://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)


def with_target(scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the scope of a request whose path is as the client has sent it, without a scheme and a host.

    Hypercorn decodes the path. Two targets would then be one path, such as ``/a%2fb`` and ``/a/b``, and a rule of a
    proxy in front of the server would miss one of them. The parts of a target that may be encoded are decoded when they
    have been found.

    A host in the target takes the place of the header, as RFC 9112 requires.
    """
    raw: bytes = scope["raw_path"]
    headers = scope["headers"]
    if (absolute := _ABSOLUTE.match(raw)) is not None:
        host, raw = absolute[1], absolute[2] or b"/"
        headers = [(b"host", host), *((name, value) for name, value in headers if name != b"host")]
    return {**scope, "path": raw.decode("ascii"), "raw_path": raw, "headers": headers}
