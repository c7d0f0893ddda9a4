"""The tokens that the accepting side gives to the dialing side. Pure.

A token is the base64 of a JSON object, so that an operator can look at it. It is a secret: its bearer can establish the
peering.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from headway.base import repr_text
from headway.errors import InvalidArgument

VERSION = 1
MAX_TOKEN = 32 << 10
"""The maximum length of a token, in characters. Most of it is certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeeringToken:
    """The content of a token.

    Attributes:
        peer_id: the uid of the accepting Peering.
        peer_name: its name.
        store_id: the id of the accepting store.
        addresses: the addresses of the accepting side.
        server_name: the name in its certificate; empty for the host of each address.
        ca: the authorities of that certificate, in PEM; empty for the system's.
        plain_text: True if the exchange and the stream need no TLS.
        secret: the one-time secret.
        expires_at: the expiry of the secret.
    """

    peer_id: str
    peer_name: str
    store_id: str
    addresses: tuple[str, ...]
    server_name: str
    ca: str
    plain_text: bool
    secret: str = field(repr=False)
    expires_at: datetime.datetime

    def text(self) -> str:
        """Return the token as text."""
        content = {"version": VERSION, **asdict(self), "expires_at": self.expires_at.isoformat()}
        return base64.b64encode(json.dumps(content, separators=(",", ":")).encode()).decode()


def read_token(text: str) -> PeeringToken:
    """Return the content of a token. Raises InvalidArgument, which never quotes the token."""
    text = text.strip()
    if not text:
        raise InvalidArgument("the token is empty: give the text that `headway peer token` has printed")
    if len(text) > MAX_TOKEN:
        raise InvalidArgument(f"the token has {len(text)} characters: it must have at most {MAX_TOKEN}")
    try:
        content = json.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidArgument(f"the token is not valid base64 of JSON: {_WHOLE}") from None
    if not isinstance(content, dict):
        raise InvalidArgument(f"the token is not a JSON object: {_WHOLE}")
    version = content.pop("version", None)
    if version != VERSION:
        raise InvalidArgument(
            f"the token has version {repr_text(version, 20)}, and this program reads version {VERSION}: "
            "use a program of the same release on both sides"
        )
    return PeeringToken(**_checked(content))


_WHOLE = "copy all of it, on one line"
_TEXTS = ("peer_id", "peer_name", "store_id", "server_name", "ca", "secret")


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    wanted = {each.name for each in fields(PeeringToken)}
    if missing := sorted(wanted - content.keys()):
        raise InvalidArgument(f"the token lacks {', '.join(missing)}: {_WHOLE}")
    # A later release may add fields. Those that must be understood come with another version.
    found = {name: content[name] for name in wanted}
    for name in _TEXTS:
        if not isinstance(found[name], str):
            raise InvalidArgument(f"the token's {name} must be a string")
    addresses = found["addresses"]
    if not isinstance(addresses, list) or not addresses or not all(isinstance(each, str) for each in addresses):
        raise InvalidArgument("the token's addresses must be a list of addresses, such as ['10.0.0.1:9000']")
    if not isinstance(found["plain_text"], bool):
        raise InvalidArgument("the token's plain_text must be true or false")
    try:
        expires_at = datetime.datetime.fromisoformat(found["expires_at"])
    except (TypeError, ValueError):
        expires_at = None
    if expires_at is None or expires_at.tzinfo is None:
        raise InvalidArgument("the token's expires_at must be a time with its zone, such as 2026-01-31T12:00:00+00:00")
    return {**found, "addresses": tuple(addresses), "expires_at": expires_at}
