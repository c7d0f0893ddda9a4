"""An etcd inside the test process: a single member with answers that cannot be provoked from a real etcd.

It keeps every revision, runs transactions, watches and leases as etcd does, and serves them by gRPC with the same
messages. A test can change `on_watch` (the responses of a watch), `on_range`, `on_txn` and `after_txn` (the answer or
error, before or after the operation), and call `compact`, `cancel_watches`, and `saved` and `restore`, which put an
older state back. A lease expires only when a test calls `end_lease`.
"""

from __future__ import annotations

import copy
import math
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.etcdserverpb import (
    AuthenticateRequest,
    AuthenticateResponse,
    Compare,
    CompareCompareResult,
    CompareCompareTarget,
    DeleteRangeRequest,
    DeleteRangeResponse,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    ResponseOp,
    TxnRequest,
    TxnResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from headway._gen.mvccpb import Event, EventEventType, KeyValue
from headway.api import Cardinality, Handler
from headway.rpc import Services, open_server

OnWatch = Callable[[WatchResponse], Iterable[WatchResponse]]


@dataclass
class _State:
    revision: int = 1
    compacted: int = 0
    keys: dict[bytes, KeyValue] = field(default_factory=dict)
    # The changes of each revision.
    history: list[tuple[int, list[Event]]] = field(default_factory=list)
    leases: dict[int, int] = field(default_factory=dict)


def _as_it_is(response: WatchResponse) -> Iterable[WatchResponse]:
    return [response]


class FakeEtcd:
    """A fake etcd of one member.

    Attributes:
        calls: the paths that were called, in order.
        watches: the requests for watches, in order.
        progress_requests: the number of progress requests on watches.
        muted: a watch that sends nothing.
        token: the token that calls must carry; None accepts any call.
    """

    def __init__(self) -> None:
        self.state = _State()
        self.calls: list[str] = []
        self.watches: list[WatchCreateRequest] = []
        self.progress_requests = 0
        self.token: str | None = None
        self.muted: WatchCreateRequest | None = None
        self.on_watch: OnWatch = _as_it_is
        self.on_range: Callable[[RangeRequest, RangeResponse], RangeResponse] = lambda _, response: response
        self.on_txn: Callable[[TxnRequest], None] = lambda _: None
        self.after_txn: Callable[[TxnRequest, TxnResponse], TxnResponse] = lambda _, response: response
        self.on_keep_alive: Callable[[LeaseKeepAliveRequest], None] = lambda _: None
        self.on_progress: Callable[[WatchResponse], WatchResponse | None] = lambda response: response
        self._watchers: dict[trio.MemorySendChannel[WatchResponse], WatchCreateRequest] = {}

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return len(self._watchers)

    # --- Called by tests -----------------------------------------------------

    def compact(self, revision: int) -> None:
        """Compact history up to a revision."""
        self.state.compacted = revision
        self.state.history = [each for each in self.state.history if each[0] > revision]

    def respond_on_watches(self, response: WatchResponse) -> None:
        """Send a response on every watch."""
        for channel in list(self._watchers):
            self._notify(channel, response)

    def _notify(self, channel: trio.MemorySendChannel[WatchResponse], response: WatchResponse) -> None:
        if self.muted is not None and self._watchers.get(channel) is self.muted:
            return
        for said in self.on_watch(response):
            channel.send_nowait(said)

    def cancel_watches(self, reason: str, *, compact_revision: int = 0) -> None:
        """End every watch, as etcd does."""
        self.respond_on_watches(self._response(canceled=True, cancel_reason=reason, compact_revision=compact_revision))

    def saved(self) -> Any:
        """Return the complete state, for `restore`."""
        return copy.deepcopy(self.state)

    def restore(self, saved: Any) -> None:
        """Replace this state with a saved one, and end every watch as a restart does."""
        self.state = copy.deepcopy(saved)
        for channel in list(self._watchers):
            channel.close()
        self._watchers.clear()

    def put(self, key: bytes, value: bytes) -> None:
        """Write a key, as another client."""
        self._txn(TxnRequest(success=[RequestOp(request_put=PutRequest(key=key, value=value))]))

    def delete(self, key: bytes) -> None:
        """Delete a key, as another client or an expired lease."""
        self._txn(TxnRequest(success=[RequestOp(request_delete_range=DeleteRangeRequest(key=key))]))

    def end_lease(self, id: int) -> None:
        """Expire a lease."""
        del self.state.leases[id]
        for key in [key for key, kv in self.state.keys.items() if kv.lease == id]:
            self.delete(key)

    # --- Keys ----------------------------------------------------------------

    def _header(self) -> ResponseHeader:
        return ResponseHeader(cluster_id=1, member_id=1, revision=self.state.revision, raft_term=2)

    def _response(self, **values: Any) -> WatchResponse:
        return WatchResponse(header=self._header(), **values)

    def _range(self, request: RangeRequest) -> RangeResponse:
        if request.revision > self.state.revision:
            raise GRPCError(Status.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
        if request.revision and request.revision < self.state.compacted:
            raise GRPCError(Status.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
        keys = self.state.keys if not request.revision else self._keys_at(request.revision)
        found = [keys[key] for key in sorted(keys) if _within(key, request.key, request.range_end)]
        shown = found[: request.limit or None]
        return RangeResponse(header=self._header(), kvs=shown, more=len(shown) < len(found), count=len(found))

    def _keys_at(self, revision: int) -> dict[bytes, KeyValue]:
        keys = dict(self.state.keys)
        for at, events in reversed(self.state.history):
            if at <= revision:
                break
            for event in reversed(events):
                assert event.kv is not None
                if event.prev_kv is not None:
                    keys[event.kv.key] = event.prev_kv
                else:
                    keys.pop(event.kv.key, None)
        return keys

    def _txn(self, request: TxnRequest) -> TxnResponse:
        events: list[Event] = []
        response = self._perform(request, self.state.revision + 1, events)
        if events:
            self.state.revision += 1
            self.state.history.append((self.state.revision, events))
            for channel, wanted in list(self._watchers.items()):
                matching = [_shown(each) for each in events if _matches(each, wanted)]
                if matching and self.state.revision >= wanted.start_revision:
                    self._notify(channel, self._response(events=matching))
        response.header = self._header()
        return response

    def _perform(self, request: TxnRequest, revision: int, events: list[Event]) -> TxnResponse:
        succeeded = all(self._holds(compare) for compare in request.compare)
        operations = request.success if succeeded else request.failure
        responses = [self._operate(each, revision, events) for each in operations]
        return TxnResponse(succeeded=succeeded, responses=responses)

    def _operate(self, operation: RequestOp, revision: int, events: list[Event]) -> ResponseOp:
        if operation.request_range is not None:
            return ResponseOp(response_range=self._range(operation.request_range))
        if operation.request_txn is not None:
            return ResponseOp(response_txn=self._perform(operation.request_txn, revision, events))
        if operation.request_put is not None:
            self._put(operation.request_put, revision, events)
            return ResponseOp(response_put=PutResponse())
        assert operation.request_delete_range is not None
        wanted = operation.request_delete_range
        gone = [key for key in self.state.keys if _within(key, wanted.key, wanted.range_end)]
        for key in gone:
            kv = KeyValue(key=key, mod_revision=revision)
            events.append(Event(type=EventEventType.DELETE, kv=kv, prev_kv=self.state.keys.pop(key)))
        return ResponseOp(response_delete_range=DeleteRangeResponse(deleted=len(gone)))

    def _put(self, request: PutRequest, revision: int, events: list[Event]) -> None:
        if request.lease and request.lease not in self.state.leases:
            raise GRPCError(Status.NOT_FOUND, "etcdserver: requested lease not found")
        old = self.state.keys.get(request.key)
        kv = KeyValue(
            key=request.key,
            value=request.value,
            lease=request.lease,
            create_revision=old.create_revision if old is not None else revision,
            mod_revision=revision,
            version=old.version + 1 if old is not None else 1,
        )
        self.state.keys[request.key] = kv
        events.append(Event(type=EventEventType.PUT, kv=kv, prev_kv=old))

    def _holds(self, compare: Compare) -> bool:
        found = [kv for key, kv in self.state.keys.items() if _within(key, compare.key, compare.range_end)]
        if not found and compare.target is CompareCompareTarget.VALUE:
            return False
        return all(_compared(compare, kv) for kv in found or [KeyValue()])

    # --- The service ---------------------------------------------------------

    def __mapping__(self) -> dict[str, Handler]:
        unary, both = Cardinality.UNARY_UNARY, Cardinality.STREAM_STREAM
        handlers = {
            "KV/Range": (self._serve_range, unary, RangeRequest, RangeResponse),
            "KV/Txn": (self._serve_txn, unary, TxnRequest, TxnResponse),
            "Watch/Watch": (self._serve_watch, both, WatchRequest, WatchResponse),
            "Lease/LeaseGrant": (self._serve_grant, unary, LeaseGrantRequest, LeaseGrantResponse),
            "Lease/LeaseRevoke": (self._serve_revoke, unary, LeaseRevokeRequest, LeaseRevokeResponse),
            "Lease/LeaseKeepAlive": (self._serve_keep_alive, both, LeaseKeepAliveRequest, LeaseKeepAliveResponse),
            "Auth/Authenticate": (self._serve_authenticate, unary, AuthenticateRequest, AuthenticateResponse),
        }
        return {f"/etcdserverpb.{path}": Handler(*handler) for path, handler in handlers.items()}

    def _called(self, call: Any) -> None:
        self.calls.append(call.path)
        if self.token is not None and call.metadata.get("token") != self.token:
            raise GRPCError(Status.UNAUTHENTICATED, "etcdserver: invalid auth token")

    async def _serve_range(self, call: Any, request: Any) -> Any:
        self._called(call)
        return self.on_range(request, self._range(request))

    async def _serve_txn(self, call: Any, request: Any) -> Any:
        self._called(call)
        self.on_txn(request)
        return self.after_txn(request, self._txn(request))

    async def _serve_grant(self, call: Any, request: Any) -> Any:
        self._called(call)
        id = len(self.calls)
        self.state.leases[id] = request.ttl
        return LeaseGrantResponse(header=self._header(), id=id, ttl=request.ttl)

    async def _serve_revoke(self, call: Any, request: Any) -> Any:
        self._called(call)
        if request.id in self.state.leases:
            self.end_lease(request.id)
        return LeaseRevokeResponse(header=self._header())

    async def _serve_keep_alive(self, call: Any, stream: Any) -> None:
        self._called(call)
        while (request := await stream.recv_message()) is not None:
            self.on_keep_alive(request)
            left = self.state.leases.get(request.id, 0)
            await stream.send_message(LeaseKeepAliveResponse(header=self._header(), id=request.id, ttl=left))

    async def _serve_authenticate(self, call: Any, request: Any) -> Any:
        self.calls.append(call.path)
        if request.password != "secret":
            raise GRPCError(Status.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password")
        return AuthenticateResponse(header=self._header(), token=self.token or "")

    async def _serve_watch(self, call: Any, stream: Any) -> None:
        self._called(call)
        wanted = (await stream.recv_message()).create_request
        self.watches.append(wanted)
        send, receive = trio.open_memory_channel[WatchResponse](math.inf)
        await stream.send_message(self._response(created=True))
        if wanted.start_revision and wanted.start_revision <= self.state.compacted:
            gone = self._response(canceled=True, compact_revision=self.state.compacted)
            await stream.send_message(gone)
            return
        for _, events in [each for each in self.state.history if each[0] >= wanted.start_revision]:
            if matching := [_shown(event) for event in events if _matches(event, wanted)]:
                self._notify(send, self._response(events=matching))
        self._watchers[send] = wanted
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer_progress, stream, send)
                async for response in receive:
                    await stream.send_message(response)
                    if response.canceled:
                        return
                nursery.cancel_scope.cancel()
        finally:
            self._watchers.pop(send, None)

    async def _answer_progress(self, stream: Any, send: trio.MemorySendChannel[WatchResponse]) -> None:
        while (request := await stream.recv_message()) is not None:
            if request.progress_request is not None:
                self.progress_requests += 1
                answer = self.on_progress(self._response())
                if answer is not None:
                    self._notify(send, answer)


def _within(key: bytes, begin: bytes, end: bytes) -> bool:
    return begin <= key < end if end else key == begin


def _matches(event: Event, wanted: WatchCreateRequest) -> bool:
    assert event.kv is not None
    return _within(event.kv.key, wanted.key, wanted.range_end)


def _shown(event: Event) -> Event:
    return Event(type=event.type, kv=event.kv)


def _compared(compare: Compare, kv: KeyValue) -> bool:
    target = CompareCompareTarget
    mine: Any
    wanted: Any
    mine, wanted = {
        target.VERSION: (kv.version, compare.version),
        target.CREATE: (kv.create_revision, compare.create_revision),
        target.MOD: (kv.mod_revision, compare.mod_revision),
        target.VALUE: (kv.value, compare.value),
        target.LEASE: (kv.lease, compare.lease),
    }[compare.target]
    # Protobuf sends zero as an absent value.
    wanted = wanted if wanted is not None else 0
    return bool(
        {
            CompareCompareResult.EQUAL: lambda: mine == wanted,
            CompareCompareResult.GREATER: lambda: mine > wanted,
            CompareCompareResult.LESS: lambda: mine < wanted,
            CompareCompareResult.NOT_EQUAL: lambda: mine != wanted,
        }[compare.result]()
    )


@asynccontextmanager
async def serving_etcd(
    fake: FakeEtcd | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[FakeEtcd, str]]:
    """Serve a fake etcd while the block runs. Yield the fake and its endpoint."""
    fake = fake or FakeEtcd()
    async with open_server(Services(fake), ["127.0.0.1:0"], tls=tls, grace=0.0) as server:
        yield fake, server.addresses[0]
