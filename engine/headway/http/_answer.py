"""Answers in JSON: whole ones, and long ones in pieces, so that none blocks other callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from headway.base import Slices, Steps, give_way
from headway.http._bounds import HeldReply
from headway.http._document import json_bytes, json_steps
from headway.http._refusal import HttpRefusal

HEADERS: Mapping[str, str] = {
    # An answer depends on the token, and is soon out of date.
    "cache-control": "no-store",
    # Nothing here is a page. A browser must not make one of it, or show it within another.
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}

JSON = "application/json"
PIECE = 32 << 10
"""The bytes of an answer to send at once."""


def answer(code: int, body: Any = None, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer with a JSON body, or without content."""
    content = None if body is None else json_bytes(body) + b"\n"
    return Response(content, code, {**HEADERS, **(headers or {})}, JSON if content is not None else None)


async def long_answer(steps: Steps[dict[str, Any]]) -> Response:
    """Return an answer with a JSON body that may be large, made with turns for other tasks between."""
    slices = Slices()
    content = await slices.of(json_steps(await slices.of(steps)))
    return Response(content + b"\n", 200, HEADERS, JSON)


def refused(refusal: HttpRefusal) -> Response:
    """Return the answer to a refused request."""
    return answer(refusal.code, refusal.body(), refusal.headers)


async def send_pieces(texts: Iterable[Steps[bytes]], send: Callable[[bytes], Awaitable[None]]) -> None:
    """Send texts, which are made in steps, in pieces of at least PIECE bytes, apart from the last one."""
    slices = Slices()
    held: list[bytes] = []
    gathered = 0
    for steps in texts:
        held.append(await slices.of(steps))
        gathered += len(held[-1])
        if gathered >= PIECE:
            piece = b"".join(held)
            held, gathered = [], 0
            await send(piece)
            await give_way()
    if held:
        await send(b"".join(held))
        await give_way()


class InPieces(Response):
    """An answer that is made and sent piece by piece, with turns for other tasks between.

    Args:
        texts: the parts of the JSON, which are made in steps when they are sent.
        size: the bytes of what they are made of.
        reply: charged with that and with each piece while it is sent.
    """

    def __init__(self, texts: Iterable[Steps[bytes]], size: int, reply: HeldReply) -> None:
        super().__init__(None, 200, HEADERS, JSON)
        # The length is not known in advance.
        del self.headers["content-length"]
        self._texts = texts
        self._size = size
        self._reply = reply

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def body(piece: bytes) -> None:
            self._reply.hold(self._size + len(piece))
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        await send_pieces(self._texts, body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
