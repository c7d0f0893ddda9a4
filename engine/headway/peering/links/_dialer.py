"""The dialing side of peer streams: it opens one stream after the other, and follows the process that serves."""

from __future__ import annotations

from collections.abc import Callable

import trio

from headway._gen.headway.peering import v1 as wire
from headway.api import Code, DetailedPrecondition, FailedCall, Interrupted, call_of
from headway.errors import CallerError, Conflict, FailedPrecondition, HeadwayError, InvalidArgument
from headway.events import PeerNotNotified, PeerRefused
from headway.peering._host import PeeringHost
from headway.peering._hub import (
    CLOSED,
    DELETED,
    NOT_LEADING,
    REFUSED,
    STORE,
    TERMINATED,
    UNREACHABLE,
    Entry,
    StreamEnded,
)
from headway.peering._secrets import REFUSED as NOT_VALID
from headway.peering._types import PEERING
from headway.peering._write_rules import check_way
from headway.peering.links._importing import open_importer
from headway.peering.links._leader import MOST_ADDRESSES, leader_in
from headway.peering.links._link import Link
from headway.peering.links._service import PEER_STREAM
from headway.peering.stream import PeerLimits, doubling
from headway.protobuf import copy_message, decode
from headway.resource import Resource

FIRST_MESSAGE = 30.0
"""The time, in seconds, within which the other side has to answer Open."""

LASTED = 60.0
"""A stream that ends after this many seconds is dialed again at once."""

RARELY = 60.0
"""The delay, in seconds, before another attempt if the other side refuses the stream or breaks the protocol."""

SECRET = 1.0
"""The interval, in seconds, of looking for the secret while the token is being exchanged."""

_REDIRECTS = 4
_ATTEMPTS = 8


def decoder() -> Callable[[list[bytes]], list[wire.PeerMessage]]:
    """Return a decoder for one stream."""
    return lambda bodies: [decode(wire.PeerMessage, body) for body in bodies]


class Dialer:
    """The dialer of one peering."""

    def __init__(self, host: PeeringHost, entry: Entry, limits: PeerLimits) -> None:
        self._host = host
        self._entry = entry
        self._limits = limits
        # The addresses to try next: the addresses of the process that serves the peering, or one of the peering's own.
        # None means all of the peering's own.
        self._target: list[str] | None = None
        self._turn = 0
        # The peering's data at the last attempt.
        self._data: wire.Peering = entry.peering.data

    async def run(self) -> None:
        """Keep a stream open, until the other side has deleted its peering, or knows that this one is being deleted."""
        failures = redirects = 0
        while not (self._entry.terminated or self._entry.notified):
            try:
                record = await self._host.secrets.read(self._entry.peering.id.uid)
                # After the secret: the entry may be older, and no secret may go to the addresses of an earlier token.
                stored = await self._host.client.get(PEERING, self._entry.peering.id)
            except HeadwayError as error:
                self._entry.ended = StreamEnded(STORE, str(error))
                await self._wait(SECRET)
                continue
            if record is None or not record.stream_secret:
                if self._entry.leaving:
                    # No stream was ever opened, so the other side has no copies and waits for nothing.
                    self._entry.notified = True
                    self._entry.note()
                    return
                await self._wait(SECRET)
                continue
            self._use(self._entry.peering if stored is None else stored)
            began = trio.current_time()
            ended = await self._attempt(record.stream_secret)
            self._entry.ended = ended
            self._entry.note()
            if lasted := trio.current_time() - began >= LASTED:
                failures = redirects = 0
            if ended.reason == NOT_LEADING and redirects < _REDIRECTS:
                # Another process serves peers, which is not a failure.
                redirects += 1
                continue
            redirects = 0
            if not lasted:
                failures += 1
            if ended.hostile or ended.reason == REFUSED:
                await self._wait(RARELY)
            elif failures:
                await self._wait(doubling(failures - 1))

    async def _wait(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._entry.changed.wait()

    def _use(self, peering: Resource[wire.Peering]) -> None:
        """Use the peering's data for the next attempt. If its addresses are others, forget the target they led to."""
        before, self._data = self._data, peering.data
        if _way(before) != _way(self._data):
            self._target = None

    async def _attempt(self, secret: str) -> StreamEnded:
        data = self._data
        wanted: wire.Peering = copy_message(data)
        if self._target is not None:
            wanted.addresses = self._target
        opening = wire.PeerMessage(open=wire.Open(peer_id=data.peer_id, secret=secret))
        try:
            async with (
                self._host.open_channel(wanted, decoders={PEER_STREAM: decoder}) as channel,
                channel.duplex(PEER_STREAM, opening) as call,
            ):
                first = await self._first(call)
                if first is None:
                    return StreamEnded(CLOSED, "the other side has closed the stream at once")
                if first.terminated is not None:
                    self._entry.terminated = True
                    return StreamEnded(TERMINATED, "the other side has deleted its peering")
                # When this stream has ended, another process may lead, so try all addresses again.
                self._target = None
                if self._entry.leaving:
                    return await self._leave(call)
                return await self._run(call, first)
        except HeadwayError as error:
            call = call_of(error)
            if call is not None:
                return self._refused(error, call)
            return StreamEnded(REFUSED if isinstance(error, CallerError) else STORE, str(error))

    async def _first(self, call: object) -> wire.PeerMessage | None:
        with trio.move_on_after(FIRST_MESSAGE):
            return await _received(call)
        raise Interrupted(Code.DEADLINE_EXCEEDED, f"the other side did not answer within {FIRST_MESSAGE:g} s")

    async def _leave(self, call: object) -> StreamEnded:
        """Notify the other side that this peering is being deleted. It ends the stream once it has stored that."""
        send = call.send  # type: ignore[attr-defined]  # a Duplex, whose module is imported late
        with trio.move_on_after(FIRST_MESSAGE):
            await send(wire.PeerMessage(terminated=wire.Terminated()))
            while await _received(call) is not None:
                pass
            self._entry.notified = True
            return StreamEnded(DELETED, "the peering was deleted here, and the other side knows")
        raise Interrupted(Code.DEADLINE_EXCEEDED, f"the other side did not confirm within {FIRST_MESSAGE:g} s")

    async def _run(self, call: object, first: wire.PeerMessage) -> StreamEnded:
        try:
            importer = await open_importer(self._host, self._entry.peering, self._limits)
        except FailedPrecondition as error:
            # This side is not ready yet: the other controller is still making the partition.
            return StreamEnded(STORE, str(error))
        ahead = [first]

        async def receive() -> wire.PeerMessage | None:
            return ahead.pop() if ahead else await _received(call)

        send = call.send  # type: ignore[attr-defined]  # a Duplex, whose module is imported late
        link = Link(
            self._host,
            self._entry,
            importer,
            send,
            receive,
            limits=self._limits,
            dialing=True,
            on_server=self._follow_server,
        )
        return await link.run()

    def _refused(self, error: HeadwayError, call: FailedCall) -> StreamEnded:
        text, code = call.message, call.code
        if code is Code.FAILED_PRECONDITION:
            details = error.details if isinstance(error, DetailedPrecondition) else ()
            self._target = leader_in(details) or self._next_address()
            return StreamEnded(NOT_LEADING, text)
        self._target = None
        if code is Code.PERMISSION_DENIED and text == NOT_VALID and self._entry.leaving:
            # No repetition of this secret would reach the other peering, if there still is one.
            self._entry.notified = True
            self._host.report(PeerNotNotified, peering=self._entry.peering.name, why=text)
        if code in (Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED):
            return StreamEnded(REFUSED, text)
        return StreamEnded(UNREACHABLE, text)

    def _next_address(self) -> list[str] | None:
        """Return the next of the peering's addresses, so that each is tried in turn."""
        addresses = self._data.addresses
        if not addresses:
            return None
        self._turn += 1
        return [addresses[self._turn % len(addresses)]]

    async def _follow_server(self, server: wire.Server) -> None:
        """Store the addresses that the accepting side has sent."""
        if not server.addresses or len(server.addresses) > MOST_ADDRESSES:
            return
        for _ in range(_ATTEMPTS):
            peering = await self._host.client.read(PEERING, self._entry.peering.name)
            data = peering.data
            wanted = (list(server.addresses), server.server_name, server.ca)
            if (data.addresses, data.server_name, data.ca) == wanted:
                return
            try:
                # Headway's own writes are not checked.
                check_way(*wanted, "", plain_text=data.plain_text)
            except InvalidArgument as error:
                why = f"its addresses are not valid: {error}"
                self._host.report(PeerRefused, why=why, peer=peering.name)
                return
            data.addresses, data.server_name, data.ca = wanted
            try:
                await self._host.client.write(peering)
            except Conflict:
                continue
            return


def _way(data: wire.Peering) -> tuple[list[str], str, str, bool]:
    return data.addresses, data.server_name, data.ca, data.plain_text


async def _received(call: object) -> wire.PeerMessage | None:
    try:
        message: wire.PeerMessage = await anext(call)  # type: ignore[call-overload]  # a Duplex
    except StopAsyncIteration:
        return None
    return message
