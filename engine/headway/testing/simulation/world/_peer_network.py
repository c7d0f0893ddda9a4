"""The links between the engines of a world's peerings, in place of gRPC: calls, and streams of numbered messages.

Messages are encoded, and decoded at the other end. A stream keeps their order, and holds only a few of them, so that a
sender waits for a slow receiver. An engine that is dropped breaks all of its streams. A stream that breaks loses what
has not arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio

from headway._gen.headway.peering.v1 import Peering, PeerMessage
from headway.api import Call, Code, Handler, Interrupted, answered
from headway.errors import HeadwayError
from headway.protobuf import decode, encode
from headway.rpc import InProcessChannel
from headway.testing.simulation import faults
from headway.testing.simulation.oracles import Message
from headway.testing.simulation.world._injector import Injector

_LATENCY = 0.01
"""The number of seconds that a message takes."""
_ROOM = 16
"""The number of messages on their way in one direction, after which a sender waits."""

_Item = bytes | HeadwayError | None
"""A message, the error that ends a stream, or its end."""


class PeerNetwork:
    """The network between the engines of one world.

    Attributes:
        nursery: where the handlers of streams run. The world sets it.
        counting: true once messages are numbered.
        count: the number of messages so far.
        sent: the messages so far that are neither heartbeats nor acknowledgements.
        strike: called with each fault that is due.
    """

    nursery: trio.Nursery

    def __init__(self, injector: Injector, plan: faults.Plan) -> None:
        self._injector = injector
        self._due = {each.message: each for each in plan if isinstance(each, faults.MessageFault)}
        self._ends: dict[str, PeerEnd] = {}
        self._pipes: set[_Pipe] = set()
        self._cuts = 0
        # The time until which messages to a side are held back, by the sides.
        self._held: dict[tuple[str, str], float] = {}
        self.counting = False
        self.count = 0
        self.sent: list[Message] = []
        self.strike: Callable[[faults.MessageFault], None] = lambda _: None

    def ends(self, side: str, engines: int) -> list[PeerEnd]:
        """Return the links of each engine of a side."""
        found = [PeerEnd(self, side, str(at + 1)) for at in range(engines)]
        self._ends |= {each.address: each for each in found}
        return found

    def addresses(self, side: str) -> list[str]:
        """Return the addresses of the engines of a side."""
        return [each.address for each in self._ends.values() if each.side == side]

    def heal(self) -> None:
        """End the faults that have not struck yet."""
        self.counting = False
        self._held.clear()
        for pipe in self._pipes:
            pipe.hurry()

    # --- faults ---

    def cut(self, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """Break every stream, and let none open for some seconds. Call ``then`` just before streams can open again."""

        def mend() -> None:
            then()
            self._cuts -= 1

        self._cuts += 1
        self.break_pipes()
        self._injector.after(seconds, mend)

    def slow(self, sender: str, receiver: str, seconds: float) -> None:
        """Hold back what a side sends for some seconds."""
        self._held[sender, receiver] = trio.current_time() + seconds
        self._injector.after(seconds, lambda: None)

    def break_pipes(self, of: PeerEnd | None = None) -> None:
        """Break all streams, or the streams of one engine."""
        for pipe in list(self._pipes):
            if of is None or of in (pipe.dialer, pipe.acceptor):
                pipe.break_()

    # --- for the ends ---

    def reach(self, addresses: Sequence[str]) -> PeerEnd:
        """Return the first engine of these addresses that serves. Raise Interrupted if none does."""
        found = [each for each in map(self._ends.get, addresses) if each is not None and each.handlers]
        if self._cuts or not found:
            raise Interrupted(Code.UNAVAILABLE, f"no server can be reached ({', '.join(addresses)})")
        return found[0]

    def open_pipe(self, dialer: PeerEnd, acceptor: PeerEnd) -> _Pipe:
        """Return a new stream."""
        pipe = _Pipe(self, dialer, acceptor)
        self._pipes.add(pipe)
        return pipe

    def forget(self, pipe: _Pipe) -> None:
        """Forget a stream that has ended."""
        self._pipes.discard(pipe)

    def pass_message(self, sender: str, receiver: str, message: PeerMessage) -> float:
        """Number a message, and let the faults that are due strike. Return the time of its arrival."""
        if self.counting:
            self.count += 1
            text = _content(message)
            if text:
                self.sent.append(Message(self.count, trio.current_time(), sender, receiver, text))
                self._injector.note(f"message {self.count}, {sender} to {receiver}: {text}")
            if (fault := self._due.pop(self.count, None)) is not None:
                if isinstance(fault, faults.PeerSlow):
                    self._injector.strike(fault)
                    self.slow(sender, receiver, fault.seconds)
                else:
                    self.strike(fault)
        return max(trio.current_time() + _LATENCY, self._held.get((sender, receiver), 0.0))


class PeerEnd:
    """The links of one engine. It satisfies `headway.peering.PeerLinks`.

    Attributes:
        side: its side.
        address: the address at which it serves.
        handlers: the handlers that it serves, by path; none while it is down.
    """

    def __init__(self, network: PeerNetwork, side: str, process: str) -> None:
        self._network = network
        self.side = side
        self.address = f"{side}-{process}.example:9000"
        self.handlers: Mapping[str, Handler] = {}
        # The streams that it serves, also broken ones whose handlers have not ended.
        self.serving: set[_Pipe] = set()

    def serve(self, handlers: Mapping[str, Handler]) -> Sequence[str]:
        """Serve calls until the engine is dropped."""
        self.handlers = handlers
        return [self.address]

    def drop(self) -> None:
        """Break everything under way, and serve nothing until the engine starts again."""
        self.handlers = {}
        self._network.break_pipes(self)
        for pipe in self.serving:
            pipe.serving.cancel()

    def open_channel(self, peering: Peering, **_: object) -> AbstractAsyncContextManager[_PeerChannel]:
        """Open a channel to the accepting side of a peering."""
        return _opened(self._network, self, peering.addresses)


@asynccontextmanager
async def _opened(network: PeerNetwork, dialer: PeerEnd, addresses: Sequence[str]) -> AsyncIterator[_PeerChannel]:
    await trio.lowlevel.checkpoint()
    yield _PeerChannel(network, dialer, addresses)


class _PeerChannel:
    """A channel to the accepting side."""

    def __init__(self, network: PeerNetwork, dialer: PeerEnd, addresses: Sequence[str]) -> None:
        self._network = network
        self._dialer = dialer
        self._addresses = addresses

    async def unary(self, path: str, request: Any, reply_type: type[Any]) -> Any:
        """Make a call."""
        acceptor = self._network.reach(self._addresses)
        sent = decode(type(request), encode(request))
        reply = await InProcessChannel(_Served(acceptor)).unary(path, sent, reply_type)
        return decode(reply_type, encode(reply))

    @asynccontextmanager
    async def duplex(self, path: str, opening: PeerMessage) -> AsyncIterator[_DialingEnd]:
        """Open a stream. Leaving the block resets it."""
        network = self._network
        acceptor = network.reach(self._addresses)
        handler = acceptor.handlers[path]
        pipe = network.open_pipe(self._dialer, acceptor)
        try:
            network.nursery.start_soon(pipe.serve, handler, name=f"peer stream at {acceptor.address}")
            dialing = _DialingEnd(pipe)
            await dialing.send(opening)
            yield dialing
        finally:
            pipe.break_()


class _Served:
    def __init__(self, end: PeerEnd) -> None:
        self._end = end

    def __mapping__(self) -> Mapping[str, Handler]:
        return self._end.handlers


class _Lane:
    """The messages of a stream in one direction, each with the time of its arrival."""

    def __init__(self, sender: str, receiver: str) -> None:
        self.sender, self.receiver = sender, receiver
        self.items: deque[tuple[float, _Item]] = deque()
        self.changed = trio.Event()

    def change(self) -> None:
        """Wake both ends."""
        self.changed.set()
        self.changed = trio.Event()

    def add(self, at: float, item: _Item) -> None:
        """Add an item behind the others."""
        last = self.items[-1][0] if self.items else 0.0
        self.items.append((max(at, last), item))
        self.change()


class _Pipe:
    """One stream between two engines."""

    def __init__(self, network: PeerNetwork, dialer: PeerEnd, acceptor: PeerEnd) -> None:
        self._network = network
        self.dialer, self.acceptor = dialer, acceptor
        self.broken = False
        self.serving = trio.CancelScope()
        self.there = _Lane(dialer.side, acceptor.side)
        self.back = _Lane(acceptor.side, dialer.side)

    def break_(self) -> None:
        """Break the stream: what is on its way is lost."""
        self.broken = True
        self._network.forget(self)
        self.there.change()
        self.back.change()

    def hurry(self) -> None:
        """Let everything that is on its way arrive now."""
        for lane in (self.there, self.back):
            lane.items = deque((0.0, item) for _, item in lane.items)
            lane.change()

    async def send(self, lane: _Lane, message: PeerMessage) -> None:
        """Send a message. Raise Interrupted if the stream has broken."""
        await trio.lowlevel.checkpoint()
        while len(lane.items) >= _ROOM and not self.broken:
            await lane.changed.wait()
        if not self.broken:
            at = self._network.pass_message(lane.sender, lane.receiver, message)
            lane.add(at, encode(message))
        # A fault of this very message may have broken it.
        if self.broken:
            raise Interrupted(Code.UNAVAILABLE, "the connection broke")

    async def receive(self, lane: _Lane) -> _Item:
        """Return the next item when it arrives. Raise Interrupted if the stream has broken."""
        await trio.lowlevel.checkpoint()
        while not self.broken:
            due = lane.items[0][0] if lane.items else float("inf")
            if due <= trio.current_time():
                _, item = lane.items.popleft()
                lane.change()
                return item
            with trio.move_on_at(due):
                await lane.changed.wait()
        raise Interrupted(Code.UNAVAILABLE, "the connection broke")

    async def serve(self, handler: Handler) -> None:
        """Run the handler of the accepting side, and end the stream as it does."""
        end: _Item = None
        self.acceptor.serving.add(self)
        try:
            with self.serving:
                await handler.func(Call(), _AcceptingEnd(self))
        except HeadwayError as error:
            if self.broken:
                return
            # A dialer learns the same of it over a network.
            end = answered(error)
            if end is None:
                raise
        finally:
            self.acceptor.serving.discard(self)
        self.back.add(trio.current_time() + _LATENCY, end)


class _AcceptingEnd:
    """The stream that the service receives."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def send_message(self, message: PeerMessage) -> None:
        await self._pipe.send(self._pipe.back, message)

    async def recv_message(self) -> PeerMessage | None:
        item = await self._pipe.receive(self._pipe.there)
        return decode(PeerMessage, item) if isinstance(item, bytes) else None


class _DialingEnd:
    """The stream of a dialer, an iterator of what the other side sends."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def send(self, message: PeerMessage) -> None:
        """Send a message."""
        await self._pipe.send(self._pipe.there, message)

    def __aiter__(self) -> _DialingEnd:
        return self

    async def __anext__(self) -> PeerMessage:
        item = await self._pipe.receive(self._pipe.back)
        if isinstance(item, HeadwayError):
            raise item
        if item is None:
            raise StopAsyncIteration
        return decode(PeerMessage, item)


def _content(message: PeerMessage) -> str:
    """Return what a message is, in a few words; empty for heartbeats and acknowledgements."""
    response, request = message.response, message.request
    if response is not None:
        if response.batch is not None:
            events = response.batch.events
            removed = sum(each.delete is not None for each in events)
            return f"batch of {len(events) - removed} resources and {removed} deletions"
        if response.begins is not None:
            return f"feed begins: {response.begins.cause.name}"
        parts = ("server", "exports", "complete", "progress")
        return next((each for each in parts if getattr(response, each) is not None), "")
    if request is not None:
        return "subscribe" if request.subscribe is not None else "nack" if request.nack is not None else ""
    return "open" if message.open is not None else "terminated" if message.terminated is not None else ""
