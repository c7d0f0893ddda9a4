"""A client with valid HTTP/2 and invalid gRPC: many calls on a connection, each answered or ended by the server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError, StreamClosedError

from tests.rpc.hostile_bytes import REQUEST
from tests.rpc.hostile_kit import PATIENCE, Target

Headers = Sequence[tuple[str, str]]
# The limit for the headers of an answer. The server accepts no longer headers itself.
HEADERS_BOUND = 16 << 10
STREAMING = ("/WatchList", "/Watch")


class Shot(NamedTuple):
    """A request: its headers, the bytes of its body, and a flag that ends its stream."""

    headers: Headers
    body: bytes
    ends: bool = True


@dataclass
class Answer:
    """The server's answer on one stream."""

    streams: bool
    headers: dict[str, str] = field(default_factory=dict)
    size: int = 0
    over: bool = False
    reset: int | None = None

    @property
    def status(self) -> int | None:
        """The gRPC status, if there is one."""
        return int(self.headers["grpc-status"]) if "grpc-status" in self.headers else None


def calling(path: str, **changed: str | None) -> Headers:
    """Return a request's headers with changes. None removes a header; ``_`` stands for ``-``, ``pseudo_`` for ``:``."""
    headers: dict[str, str | None] = {**dict(REQUEST), ":path": path}
    headers.update({name.replace("pseudo_", ":").replace("_", "-"): value for name, value in changed.items()})
    return [(name, value) for name, value in headers.items() if value is not None]


class Caller:
    """A connection that makes calls."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._h2 = H2Connection(
            H2Configuration(
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
                validate_inbound_headers=False,
            )
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(1 << 26)
        self.answers: dict[int, Answer] = {}
        self.closed = False

    async def shoot(self, shots: Iterable[Shot]) -> list[Answer]:
        """Make all calls at once, and wait until each is over or the connection has ended."""
        mine: list[Answer] = []
        try:
            for shot in shots:
                mine.append(await self._send(shot))
            await self._flush()
        except (ProtocolError, trio.BrokenResourceError):
            self.closed = True
        while not self.closed and not all(answer.over for answer in mine):
            await self._receive()
        return mine

    async def _send(self, shot: Shot) -> Answer:
        id = self._h2.get_next_available_stream_id()
        answer = self.answers[id] = Answer(dict(shot.headers).get(":path", "").endswith(STREAMING))
        self._h2.send_headers(id, shot.headers, end_stream=shot.ends and not shot.body)
        body = memoryview(shot.body)
        while body and not answer.over and not self.closed:
            room = min(self._h2.local_flow_control_window(id), self._h2.max_outbound_frame_size)
            if room <= 0:
                await self._flush()
                await self._receive()
                continue
            piece, body = bytes(body[:room]), body[room:]
            self._h2.send_data(id, piece, end_stream=shot.ends and not body)
        return answer

    async def _flush(self) -> None:
        await self._stream.send_all(self._h2.data_to_send())

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive_some(65536)
            self.closed = not data
            for event in self._h2.receive_data(data):
                self._take(event)
            await self._flush()
        except (trio.BrokenResourceError, ProtocolError):
            self.closed = True

    def _take(self, event: Any) -> None:
        answer = self.answers.get(getattr(event, "stream_id", None) or 0)
        if answer is None:
            return
        match event:
            case ResponseReceived() | TrailersReceived():
                answer.headers.update(event.headers)  # type: ignore[arg-type]  # decoded: see header_encoding
                answer.size += sum(len(name) + len(value) + 32 for name, value in event.headers)
            case DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if answer.streams and not answer.over:
                    # A watch that was opened never ends by itself.
                    with contextlib.suppress(StreamClosedError):
                        # Its deadline may have ended it in the bytes that were just read.
                        self._h2.reset_stream(event.stream_id, ErrorCodes.CANCEL)
                    answer.over = True
            case StreamEnded():
                answer.over = True
            case StreamReset():
                answer.over = True
                answer.reset = event.error_code


async def shoot(target: Target, kind: str, shots: Sequence[Shot]) -> list[Answer]:
    """Make the calls on a connection of their own. The length of each answer is bounded."""
    target.inputs[kind] += len(shots)
    stream = await target.open()
    try:
        with trio.fail_after(PATIENCE):
            answers = await Caller(stream).shoot(shots)
    finally:
        await trio.aclose_forcefully(stream)
    for shot, answer in zip(shots, answers, strict=False):
        assert answer.size <= HEADERS_BOUND, f"{answer.size} bytes of headers answer {shot.body[:100]!r}"
    return answers
