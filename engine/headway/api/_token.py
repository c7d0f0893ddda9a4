"""The token of a client, as the metadata of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from headway.base import check_token

TOKEN_HEADER = "x-consul-token"
"""The name of the metadata with a caller's token, as Consul's clients send it."""

Token: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns it. The function is called for each call to the server, and must not block."""


class TokenMetadata(Mapping[str, str]):
    """The metadata of a caller, with the token at the time of each call."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def __getitem__(self, name: str) -> str:
        if name != TOKEN_HEADER:
            raise KeyError(name)
        token = self._token if isinstance(self._token, str) else self._token()
        check_token(token)
        return token

    def __iter__(self) -> Iterator[str]:
        return iter((TOKEN_HEADER,))

    def __len__(self) -> int:
        return 1


def token_metadata(token: Token) -> Mapping[str, str] | None:
    """Return the metadata of a caller with this token, or None for an empty one."""
    return TokenMetadata(token) if token else None
