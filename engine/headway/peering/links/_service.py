"""The accepting side of peer streams: it admits a dialer by its secret, and runs the stream."""

from __future__ import annotations

from collections import Counter

import trio

from headway._gen.headway.peering import v1 as wire
from headway.api import Api, Call, Cardinality, DetailedPrecondition, Duplex, Exhausted, method
from headway.errors import (
    Conflict,
    FailedPrecondition,
    HeadwayError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from headway.events import PeerRefused
from headway.peering._exchange import is_local
from headway.peering._host import PeeringHost
from headway.peering._hub import BREACH, DELETED, NOT_LEADING, REPLACED, STORE, TERMINATED, Entry, StreamEnded
from headway.peering._types import STREAM_KEY
from headway.peering.links._conditions import conditions_of
from headway.peering.links._importing import open_importer
from headway.peering.links._leader import LEADER_URL, known_leader
from headway.peering.links._link import Link
from headway.peering.stream import Breach, PeerLimits, spend
from headway.protobuf import encode
from headway.resource import AnyMessage
from headway.rpc import peer_of

PEER_STREAM = "/headway.peering.v1.PeerStreamService/StreamResources"

OPEN_TIMEOUT = 10.0
"""The time, in seconds, within which a dialer has to send Open."""

MOST_UNKNOWN = 100
"""The number of streams that may wait for their Open. Of more, the oldest one of the host with the most is ended, so
that no stranger keeps a dialer out."""

_MAX_TEXT = 255
# Terminated was received, or sent. After any other end, a dialer that was deleted must notify this side again.
_NORMAL = (TERMINATED, DELETED)
_REFUSALS: dict[str, type[HeadwayError]] = {BREACH: InvalidArgument, REPLACED: Conflict}


class PeerStreamService(Api, service="headway.peering.v1.PeerStreamService"):
    """The streams of the dialing engines. A stream needs only the secret of its peering."""

    def __init__(self, host: PeeringHost, limits: PeerLimits | None = None) -> None:
        self._host = host
        self._limits = limits or PeerLimits()
        self._unknown: dict[trio.CancelScope, str] = {}
        """The hosts of the streams that wait for their Open, by the scopes of these waits. The oldest are first."""

    @method("StreamResources", wire.PeerMessage, wire.PeerMessage, Cardinality.STREAM_STREAM)
    async def stream_resources(self, call: Call, stream: Duplex) -> None:
        """Serve one stream."""
        admitted = await self._admit(call, stream)
        if admitted is None:
            await stream.send_message(wire.PeerMessage(terminated=wire.Terminated()))
            return
        host = self._host
        entry = host.streams.entries.get(admitted)
        if not host.streams.leading:
            raise await self._not_leading()
        if entry is None:
            raise Unavailable("the peering is not ready yet, or is being deleted: try again")
        try:
            spend(entry.opening, trio.current_time(), "streams")
        except Breach as breach:
            host.report(PeerRefused, why=str(breach), peer=entry.peering.name)
            raise Exhausted(str(breach)) from breach
        if _in_plain_text(call) and not entry.peering.data.plain_text:
            raise PermissionDenied("the peering's stream must be over TLS")
        ended = await self._run(stream, entry)
        if ended.reason == NOT_LEADING:
            raise await self._not_leading()
        if ended.reason not in _NORMAL:
            raise _REFUSALS.get(ended.reason, Unavailable)(str(ended))

    async def _run(self, stream: Duplex, entry: Entry) -> StreamEnded:
        # It would fail at its next commit, once the copies are read for the new one.
        entry.end(StreamEnded(REPLACED, "a newer stream of this peering was opened"))
        try:
            importer = await open_importer(self._host, entry.peering, self._limits)
        except FailedPrecondition as error:
            return StreamEnded(STORE, str(error))
        except HeadwayError as error:
            return StreamEnded(STORE, f"the store of the accepting side failed: {type(error).__name__}")
        link = Link(
            self._host,
            entry,
            importer,
            stream.send_message,
            stream.recv_message,
            limits=self._limits,
            dialing=False,
        )
        ended = await link.run()
        if ended.reason == TERMINATED:
            await self._store_terminated(entry)
        return ended

    async def _store_terminated(self, entry: Entry) -> None:
        """Store that the dialing side was deleted.

        It notifies this side again unless the stream ends without an error.
        """
        try:
            await self._host.client.write_status(entry.peering, STREAM_KEY, conditions_of(entry))
        except NotFound:
            # The peering was deleted here as well.
            return
        except HeadwayError as error:
            raise Unavailable("the deletion could not be stored: try again") from error

    async def _admit(self, call: Call, stream: Duplex) -> str | None:
        """Return the uid of the Peering that a stream belongs to, or None if it was deleted."""
        host, peer = self._host, call.peer
        caller = "" if peer is None else peer_of(peer.addr())
        if host.failures.refuses(caller, trio.current_time()):
            raise Exhausted("too many failed attempts from this host: try again in a minute")
        if len(self._unknown) >= MOST_UNKNOWN:
            self._end_unknown()
        first: wire.PeerMessage | None = None
        waiting = trio.move_on_after(OPEN_TIMEOUT)
        self._unknown[waiting] = caller
        try:
            with waiting:
                first = await stream.recv_message()
        finally:
            ended = self._unknown.pop(waiting, None) is None
        if first is None and ended:
            raise Exhausted("too many streams have not sent open yet: try again")
        if first is None or first.open is None:
            raise InvalidArgument(f"open must be the first message, within {OPEN_TIMEOUT:g} s")
        given = first.open
        if max(len(given.peer_id), len(given.secret)) > _MAX_TEXT:
            raise InvalidArgument(f"open has a field of more than {_MAX_TEXT} characters")
        if _in_plain_text(call) and not is_local(peer):
            raise PermissionDenied("a peer stream from another host must be over TLS")
        try:
            admitted = await host.secrets.authenticate(given.peer_id, given.secret)
        except PermissionDenied as error:
            host.failures.add(caller, trio.current_time())
            host.report(PeerRefused, why=str(error), peer=caller)
            raise
        except HeadwayError as error:
            raise Unavailable(str(error)) from error
        return None if admitted.terminated else admitted.uid

    def _end_unknown(self) -> None:
        """End the oldest stream without an Open of the host that has the most of them."""
        counts = Counter(self._unknown.values())
        host = max(counts, key=counts.__getitem__)
        oldest = next(waiting for waiting, its in self._unknown.items() if its == host)
        del self._unknown[oldest]
        oldest.cancel()

    async def _not_leading(self) -> DetailedPrecondition:
        host = self._host
        leader = wire.Leader()
        try:
            if not host.streams.leading:
                leader = await known_leader(host)
        except HeadwayError:
            leader = wire.Leader()
        details = (AnyMessage(type_url=LEADER_URL, value=encode(leader)),)
        text = f"another process serves peers: {', '.join(leader.addresses) or 'its addresses are not known yet'}"
        return DetailedPrecondition(text, details)


def _in_plain_text(call: Call) -> bool:
    # A stream within the process has no peer.
    return call.peer is not None and not call.encrypted
