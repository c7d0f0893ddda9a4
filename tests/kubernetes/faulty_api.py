"""The API servers of a cluster behind a balancer and a network that a test makes faulty."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from headway.api import Code, Interrupted, NotBegun
from headway.errors import HeadwayError
from headway.kubernetes._http import ApiServer

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "the test says that this is too old"}
SLOW = 0.4


class Late(NamedTuple):
    """A write that has not arrived yet, though its caller has given up.

    Attributes:
        raised: the number of fences that the program had raised before it.
    """

    method: str
    path: str
    options: dict[str, Any]
    raised: int


class Streams:
    """The faults of the watches of one type, open and future ones."""

    def __init__(self) -> None:
        self.open: list[_Watch] = []
        # How the next ones begin: `lost`, `gone` or `broken` in the middle of the snapshot.
        self.beginnings: deque[str] = deque()
        self.delay = 0.0
        self.changed = trio.Event()

    def tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def end(self, how: str, begins: Sequence[str] = ()) -> None:
        """End the open watches: `lost`, `gone`, or `over` as a server ends them. The next ones begin so."""
        self.beginnings.extend(begins)
        for each in self.open:
            each.end(how)
        self.tell()

    def hold(self) -> None:
        """Hold back all events of the open watches. Those that are opened later pass."""
        for each in self.open:
            each.held = True

    def set(self, *, delay: float) -> None:
        """Release all events, and delay each of them from now on."""
        self.delay = delay
        for each in self.open:
            each.held = False
        self.tell()


class FaultyApi:
    """The servers of a cluster, in the place of an `ApiServer`.

    Attributes:
        servers: the API servers. Calls and watches go to them in turns, or to the first of ``up`` alone.
        up: the numbers of the servers that the balancer uses.
        writes: the faults of the next writes of objects, one each.
        leases: the faults of the next writes of leases and fences, one each.
        reads: the number of next reads that fail.
        late: the writes that have not arrived yet.
        dead: True once the process was killed. Every call fails then.
        raised: the number of fences that the program has raised.
    """

    def __init__(self, servers: Sequence[ApiServer]) -> None:
        self.servers = servers
        self.up = [0]
        self._turn = 0
        self.writes: deque[str] = deque()
        self.leases: deque[str] = deque()
        self.reads = 0
        self.late: list[Late] = []
        self.raised = 0
        self._streams: dict[str, Streams] = {}
        self.dead = False
        self._scopes: set[trio.CancelScope] = set()

    def streams(self, plural: str) -> Streams:
        """Return the watches of a type."""
        return self._streams.setdefault(plural, Streams())

    def heal(self) -> None:
        """End all faults."""
        self.writes.clear()
        self.leases.clear()
        self.reads = 0
        for each in self._streams.values():
            each.beginnings.clear()
            each.set(delay=0.0)

    def die(self) -> None:
        """Cut the process off for good, as by `kill -9`. The calls that it has sent may still have an effect."""
        self.dead = True
        for each in self._scopes:
            each.cancel()
        for streams in self._streams.values():
            streams.end("lost")

    def _next(self) -> ApiServer:
        self._turn += 1
        return self.servers[self.up[self._turn % len(self.up)]]

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Make a call, with the fault that it has."""
        if self.dead:
            raise NotBegun(Code.UNAVAILABLE, "the process was killed")
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await self._call(method, path, options)
            finally:
                self._scopes.discard(scope)
        raise Interrupted(Code.UNAVAILABLE, "the process was killed")

    async def _call(self, method: str, path: str, options: dict[str, Any]) -> Any:
        if method == "GET":
            if self.reads:
                self.reads -= 1
                raise NotBegun(Code.UNAVAILABLE, "the test refuses this read")
            return await self._next().call(method, path, **options)
        faults = self.leases if "/leases" in path else self.writes
        fault = faults.popleft() if faults else ""
        if fault == "failed":
            raise NotBegun(Code.UNAVAILABLE, "the test refuses this write")
        if fault == "late":
            self.late.append(Late(method, path, options, self.raised))
            raise Interrupted(Code.DEADLINE_EXCEEDED, "the test delays this write")
        try:
            answer = await self._next().call(method, path, **options)
        finally:
            if fault == "slow":
                with trio.CancelScope(shield=True):
                    await trio.sleep(SLOW)
        if fault == "lost":
            raise Interrupted(Code.UNAVAILABLE, "the test has lost the answer")
        return answer

    async def arrive(self, server: ApiServer) -> list[tuple[Late, HeadwayError | None]]:
        """Let the late writes arrive, and return how each has ended."""
        late, self.late = self.late, []
        ends: list[tuple[Late, HeadwayError | None]] = []
        for each in late:
            try:
                await server.call(each.method, each.path, **each.options)
            except HeadwayError as error:
                ends.append((each, error))
            else:
                ends.append((each, None))
        return ends

    @asynccontextmanager
    async def watch(self, path: str, params: Any = None, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch, with the faults of its type."""
        streams = self.streams(path.rpartition("/")[2])
        begins = streams.beginnings.popleft() if streams.beginnings else ""
        if self.dead or begins == "lost":
            raise NotBegun(Code.UNAVAILABLE, "the test refuses this watch")
        async with self._next().watch(path, params, **options) as lines:
            watch = _Watch(lines, streams, begins)
            streams.open.append(watch)
            try:
                yield watch
            finally:
                streams.open.remove(watch)


class _Watch:
    def __init__(self, lines: AsyncIterator[bytes], streams: Streams, begins: str) -> None:
        self._lines, self._streams = lines, streams
        self.ends = begins if begins == "gone" else ""
        self.held = False
        self._left = 2 if begins == "broken" else -1
        self._reading = trio.CancelScope()

    def end(self, how: str) -> None:
        """End the watch, also while it waits."""
        self.ends = how
        self._reading.cancel()

    def __aiter__(self) -> _Watch:
        return self

    async def __anext__(self) -> bytes:
        line: bytes | None = None
        if not self.ends:
            # A read that is canceled would lose a part of a line, so only the end of the watch cancels it.
            with trio.CancelScope() as self._reading:
                line = await anext(self._lines, None)
        while not self.ends and self.held:
            await self._streams.changed.wait()
        if self._streams.delay:
            await trio.sleep(self._streams.delay)
        self._left -= 1
        if self.ends == "gone":
            self.ends = "lost"
            return json.dumps({"type": "ERROR", "object": GONE}).encode()
        if self.ends == "lost" or self._left == 0:
            raise NotBegun(Code.UNAVAILABLE, "the test has cut this watch off")
        if self.ends == "over" or line is None:
            raise StopAsyncIteration
        return line
