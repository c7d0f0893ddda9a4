"""A peer stream, on either side: the tasks that drive a sender and a receiver.

The reader passes messages to them, and stores the receiver's work before it reads on. The writer is the only task that
sends. The exporter feeds the sender.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from headway._gen.headway.peering import v1 as wire
from headway.api import Code, call_of
from headway.base import Bucket
from headway.errors import HeadwayError
from headway.events import PeerRefused, PeerStoreReplaced
from headway.peering._host import PeeringHost
from headway.peering._hub import (
    ACCEPT_KEY,
    BREACH,
    CLOSED,
    DELETED,
    INVALID_EXPORTS,
    SILENT,
    STORE,
    TERMINATED,
    Entry,
    Progress,
    StreamEnded,
)
from headway.peering._received import received_check
from headway.peering.links._exporting import Exporter
from headway.peering.links._importing import Importer, unknown_here
from headway.peering.stream import (
    HEARTBEAT,
    SILENCE,
    Breach,
    Copying,
    PeerLimits,
    Receiver,
    Sender,
    Work,
    exports_of,
    spend,
)

_INVALID = (Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED, Code.UNIMPLEMENTED)
"""The statuses for a message that cannot be decoded, is too large, or is compressed."""

_UNSENT = 64
"""The number of answers that may wait to be sent before the reader waits."""

_HEARTBEATS = 20
"""The number of heartbeats that a peer may send at once, and then one a second."""

TOLD = 4.0
"""The time, in seconds, within which the accepting side ends the stream after Terminated."""

_LOAD = 600.0
"""The time, in seconds, after which a first copy that is not complete counts as one that never will be."""

Send = Callable[[wire.PeerMessage], Awaitable[None]]
Receive = Callable[[], Awaitable[wire.PeerMessage | None]]
"""A function that waits for the next message, and returns None at the end."""


class Link:
    """A stream of a peering.

    Args:
        entry: the entry of the peering.
        importer: the copies.
        send, receive: the stream.
        dialing: True on the dialing side.
        on_server: called on the dialing side with the peer's addresses, whenever they change.
    """

    def __init__(
        self,
        host: PeeringHost,
        entry: Entry,
        importer: Importer,
        send: Send,
        receive: Receive,
        *,
        limits: PeerLimits,
        dialing: bool,
        on_server: Callable[[wire.Server], Awaitable[None]] | None = None,
    ) -> None:
        self._host = host
        self._entry = entry
        self._importer = importer
        self._send = send
        self._receive = receive
        self._limits = limits
        self._dialing = dialing
        self._on_server = on_server
        self._sender = Sender(limits)
        self._receiver = Receiver(
            importer.copies,
            importer.state,
            lambda export: unknown_here(host, export),
            received_check(host.registry),
            compare=host.schemas.problem,
            limits=limits,
            follows_server=dialing,
        )
        self._exporter = Exporter(host, self._sender, self._fed)
        self._requests: deque[wire.Request] = deque()
        self._copied = trio.Event()
        self._woken = trio.Event()
        self._drained = trio.Event()
        self._heartbeats = Bucket(_HEARTBEATS, 1.0, 0.0)
        self._telling = self._said = False
        self._replaced = 0
        self._scope = trio.CancelScope()
        self._ended: StreamEnded | None = None

    async def run(self) -> StreamEnded:
        """Run the stream until it ends, and return the reason."""
        try:
            await self._entry.begin(self._end, self._tell)
        except StreamEnded as ended:
            return ended
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for task in (self._read, self._write, self._exporter.run, self._follow, self._load):
                        nursery.start_soon(self._guarded, task, name=f"peer stream {task.__name__}")
        finally:
            self._entry.finish(self._ended)
        assert self._ended is not None
        return self._ended

    def _end(self, ended: StreamEnded) -> None:
        self._ended = self._ended or ended
        self._scope.cancel()

    def _tell(self) -> None:
        self._telling = True
        self._wake()

    def _wake(self) -> None:
        self._woken.set()

    def _fed(self) -> None:
        self._wake()
        self._note()

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task. An error that belongs to the stream ends it; any other leaves the nursery."""
        try:
            await task()
        except StreamEnded as ended:
            self._end(ended)
        except Breach as breach:
            if self._ended is not None:
                # This side has already ended the stream, so the peer may not know everything that it may ask for.
                return
            self._host.report(PeerRefused, why=str(breach), peer=self._entry.peering.name)
            self._end(StreamEnded(BREACH, str(breach), hostile=True))
        except HeadwayError as error:
            call = call_of(error)
            self._end(StreamEnded(STORE, str(error)) if call is None else StreamEnded(CLOSED, call.message))
        except trio.BrokenResourceError as error:
            self._end(StreamEnded(CLOSED, str(error)))

    # --- tasks ---

    async def _read(self) -> None:
        self._requests += self._receiver.start()
        self._wake()
        while True:
            with trio.move_on_after(SILENCE) as scope:
                message = await self._received()
            if scope.cancelled_caught:
                raise StreamEnded(SILENT, f"the peer has sent nothing for {SILENCE:g} s")
            if message is None:
                # The accepting side ends the stream without an error once it has stored the message.
                self._entry.notified = self._said
                raise StreamEnded(CLOSED, "the peer has closed the stream")
            if message.request is not None:
                self._sender.request(message.request, trio.current_time())
                self._exporter.look()
                self._note()
                self._wake()
            elif message.response is not None:
                await self._answer(message.response)
            elif message.heartbeat is not None:
                spend(self._heartbeats, trio.current_time(), "heartbeats")
            elif message.terminated is not None:
                self._entry.terminated = True
                raise StreamEnded(TERMINATED, "the other side has deleted its peering")
            elif message.open is not None:
                raise Breach("open must be the first message, and must not be sent again")
            else:
                raise Breach("a message has no content that is known here")

    async def _received(self) -> wire.PeerMessage | None:
        try:
            return await self._receive()
        except HeadwayError as error:
            call = call_of(error)
            if call is None or call.code not in _INVALID:
                raise
            raise Breach(f"a message is not valid: {call.message}") from error

    async def _answer(self, response: wire.Response) -> None:
        while len(self._requests) >= _UNSENT:
            self._drained = trio.Event()
            await self._drained.wait()
        work = self._receiver.response(response)
        await self._store(work)
        if self._receiver.copying is Copying.CURRENT:
            self._copied.set()
        self._requests += work.replies
        self._note()
        self._wake()

    async def _load(self) -> None:
        """Tell the engine of the first copy that this process receives of the peering, until it is complete."""
        state = self._importer.state
        if self._entry.loaded or (state is not None and state.complete):
            return
        # Once, because a peer that ends each of its streams early must not affect the process time after time.
        self._entry.loaded = True
        with self._host.loads(), trio.move_on_after(_LOAD):
            await self._copied.wait()

    async def _store(self, work: Work) -> None:
        if work.replaced:
            self._replaced += 1
            self._host.report(PeerStoreReplaced, peering=self._entry.peering.name)
        if work.commits or work.state is not None:
            if self._entry.peering.is_deleting:
                raise StreamEnded(DELETED, "the peering is being deleted")
            await self._importer.store(work)
        if work.server is not None and self._on_server is not None:
            await self._on_server(work.server)

    async def _write(self) -> None:
        beat = trio.current_time() + HEARTBEAT
        while True:
            # Before everything that this round looks at, so that nothing that another task adds meanwhile waits.
            self._woken = trio.Event()
            if self._requests:
                await self._put(wire.PeerMessage(request=self._requests.popleft()))
                self._drained.set()
                continue
            if self._telling:
                await self._put(wire.PeerMessage(terminated=wire.Terminated()))
                self._said = True
                self._ended = StreamEnded(DELETED, "the peering was deleted here")
                # A dialer that leaves resets the stream, and the peer may not have read the message then. So the peer
                # ends it.
                if self._dialing:
                    with trio.move_on_after(TOLD):
                        await trio.sleep_forever()
                raise self._ended
            now = trio.current_time()
            if now >= beat:
                beat = now + HEARTBEAT
                await self._put(wire.PeerMessage(heartbeat=wire.Heartbeat()))
                continue
            for id in self._sender.due_again(now):
                self._sender.again(id, await self._exporter.read(id))
            response = self._sender.take(now)
            self._exporter.look()
            if response is not None:
                await self._put(wire.PeerMessage(response=response))
                continue
            with trio.move_on_at(min(beat, self._sender.next_time())):
                await self._woken.wait()

    async def _put(self, message: wire.PeerMessage) -> None:
        """Send a message. A peer that takes nothing has failed, even if its heartbeats arrive."""
        with trio.move_on_after(SILENCE) as scope:
            await self._send(message)
        if scope.cancelled_caught:
            raise StreamEnded(SILENT, f"the peer has taken nothing for {SILENCE:g} s")

    async def _follow(self) -> None:
        """Follow the changes of the Peering: its exports, its addresses, and what an operator accepts."""
        while True:
            peering, changed = self._entry.peering, self._entry.changed
            data = peering.data
            try:
                exports = exports_of(data.exports, self._limits.exports)
            except Breach as breach:
                # An earlier release, or a store that was edited, had other bounds. The peer has done nothing wrong.
                raise StreamEnded(
                    INVALID_EXPORTS, f"the exports of peering {peering.name} on this side: {breach}"
                ) from None
            self._sender.offer(exports, self._host.schemas.describe(exports, self._limits))
            if not self._dialing:
                server = wire.Server(addresses=list(data.addresses), server_name=data.server_name, ca=data.ca)
                self._sender.serve(server)
            self._receiver.accept(peering.metadata.get(ACCEPT_KEY, ""))
            self._exporter.look()
            self._wake()
            await changed.wait()

    def _note(self) -> None:
        """Request that the conditions are written if something about the stream has changed."""
        receiver = self._receiver
        progress = Progress(
            receiver.copying,
            receiver.held,
            tuple(f"{each}: {why}" for each, why in receiver.problems.items()),
            tuple(f"{id}: {why}" for id, why in receiver.refused.items()),
            tuple(self._sender.refusals()),
            self._replaced,
            self._exporter.problem,
        )
        if progress != self._entry.progress:
            self._entry.progress = progress
            self._entry.note()
