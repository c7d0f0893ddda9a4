"""Calls to a cluster. Any member may serve them. They carry the user's token, have a deadline, and raise our errors."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import trio

from headway._gen.etcdserverpb import (
    AuthenticateRequest,
    AuthenticateResponse,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    RangeRequest,
    RangeResponse,
    TxnRequest,
    TxnResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from headway.api import Code, Interrupted, call_of, code_of
from headway.errors import HeadwayError, HistoryCompacted, InvalidArgument, OutcomeUnknown, StoreUnusable, Unavailable
from headway.protobuf import decode
from headway.rpc import (
    Duplex,
    Limits,
    Rate,
    RemoteChannel,
    WireLimits,
    client_tls,
    open_channel,
    plain_text_host,
    readable,
)
from headway.storage.etcd._address import EtcdAddress
from headway.storage.etcd.layout import Transaction, TransactionReply

# With these statuses a write was certainly not applied. etcd returns them before it begins, or when it has decided
# against the write. Any other error may hide that the write was applied. A member that has applied a write can even
# answer with "database space exceeded".
_REFUSED = frozenset(
    (
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.PERMISSION_DENIED,
        Code.UNAUTHENTICATED,
        Code.FAILED_PRECONDITION,
        Code.OUT_OF_RANGE,
        Code.UNIMPLEMENTED,
    )
)
_COMPACTED = "has been compacted"
_NO_LEADER = "etcdserver: no leader"
_FULL = "database space exceeded"
_TOO_MANY_REQUESTS = "etcdserver: too many requests"
# etcd itself looks at requests of up to 512 KiB more than its limit. Its gRPC server refuses larger ones before that.
_TOO_LARGE = ("etcdserver: request is too large", "grpc: received message larger than max")
_TOO_MANY_OPERATIONS = "etcdserver: too many operations in txn request"
_STALE_TOKENS = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old")


def said(error: HeadwayError) -> str:
    """Return the message of the error, or the name of its status. A full etcd needs more than room on its disk."""
    call = call_of(error)
    text = str(error) if call is None else call.message
    if _FULL not in text:
        return text
    return (
        f"{text}: compact its history, defragment it and disarm its alarm with etcdctl, or raise --quota-backend-bytes"
    )


def wants_new_token(error: HeadwayError) -> bool:
    """Return True if the call failed only because of its token."""
    return any(text in said(error) for text in _STALE_TOKENS)


def is_behind(error: HeadwayError) -> bool:
    """Return True if another member may succeed."""
    call = call_of(error)
    return call is not None and call.code is Code.UNAVAILABLE and not call.not_begun


def may_be_asked_again(error: HeadwayError) -> bool:
    """Return True if a read that failed with this error may succeed now."""
    return code_of(error) in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED) or _TOO_MANY_REQUESTS in said(error)


def nothing_was_done(error: HeadwayError) -> bool:
    """Return True if a write that failed with this error has certainly not happened and will not."""
    call = call_of(error)
    return (
        (call is not None and call.not_begun)
        or code_of(error) in _REFUSED
        or said(error).startswith((_NO_LEADER, _TOO_MANY_REQUESTS))
    )


def failure(error: HeadwayError, where: str, *, writes: bool) -> HeadwayError:
    """Return the error of Headway for a failed call."""
    text = said(error)
    if any(each in text for each in _TOO_LARGE):
        return InvalidArgument(
            f"the commit is larger than etcd at {where} accepts in one request (its --max-request-bytes, 1.5 MiB by "
            "default). Nothing was written"
        )
    if _TOO_MANY_OPERATIONS in text:
        return InvalidArgument(
            f"the commit has more operations than etcd at {where} accepts in one transaction. Nothing was written. The "
            "store's url must have a max_txn_ops of at most etcd's --max-txn-ops, which is 128 by default"
        )
    if code_of(error) is Code.OUT_OF_RANGE and _COMPACTED in text:
        return HistoryCompacted(f"etcd at {where} has compacted the revision: {text}")
    if writes and not nothing_was_done(error):
        return OutcomeUnknown(f"etcd at {where} failed during a commit, which may have happened: {text}")
    if code_of(error) in (Code.PERMISSION_DENIED, Code.UNAUTHENTICATED):
        return StoreUnusable(f"etcd at {where} refuses this user: {text}")
    if code_of(error) is Code.UNIMPLEMENTED:
        return StoreUnusable(f"the server at {where} is not an etcd with the v3 API: {text}")
    return Unavailable(f"etcd at {where} is unavailable: {text}")


def too_many_operations(needed: int, most: int, where: str) -> InvalidArgument:
    """Return the error for a commit that was not sent because it has too many operations."""
    return InvalidArgument(
        f"the commit needs {needed} operations, but etcd at {where} accepts {most} in one transaction. Nothing was "
        f"sent. Split it into several commits, or start etcd with --max-txn-ops={needed} or more and set "
        f"max_txn_ops={needed} in the store's url. A resource needs one operation, with an owner two"
    )


class Unreadable(StoreUnusable):
    """Another program has written under the prefix."""


@contextmanager
def understood(where: str) -> Iterator[None]:
    """Raise Unreadable if the block cannot decode values under the prefix: another program has written them."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise Unreadable(f"the prefix of {where} has a value that Headway has not written: {error}") from error


RANGE, TXN = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
WATCH = "/etcdserverpb.Watch/Watch"
GRANT, REVOKE = "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseRevoke"
KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"

CALL_TIMEOUT = 10.0
"""The timeout of one call in seconds. etcd itself gives up on a write after about seven, and returns an error."""

LIMITS = Limits(
    # Enough for a page of a snapshot whose last resources have the largest size that etcd accepts.
    message_size=1 << 30,
    wire=WireLimits(
        streams=1000,
        stream_window=4 << 20,
        frame_size=64 << 10,
        keepalive_interval=3.0,
        keepalive_timeout=3.0,
        others=Rate(100_000, 50_000),
    ),
)
# The number of attempts of a read, and the seconds that are added to the wait after each.
_READS, _WAIT = 4, 0.1
# Sent with every call, so that a member without a majority fails at once instead of letting the caller wait.
_REQUIRE_LEADER = {"hasleader": "true"}

Reply = TypeVar("Reply")


class EtcdClient:
    """A client of one cluster.

    Attributes:
        where: the name of the store in errors.
    """

    def __init__(self, channel: RemoteChannel, address: EtcdAddress) -> None:
        self._channel = channel
        self._address = address
        self.where = str(address)
        self._metadata = dict(_REQUIRE_LEADER)
        self._authenticating = trio.Lock()

    async def range(self, request: RangeRequest) -> RangeResponse:
        """Read a range, linearizably unless the request has another setting. Retry for a while before raising."""
        return await self._read(RANGE, request, RangeResponse)

    async def read(self, request: TxnRequest) -> TxnResponse:
        """Read by a transaction that writes nothing. Retry for a while before raising."""
        return await self._read(TXN, request, TxnResponse)

    async def write(self, request: TxnRequest | Transaction) -> TransactionReply:
        """Write, without retries. Raise OutcomeUnknown if the write may have happened, another error if it has not."""
        return await self._once(TXN, request, TransactionReply, writes=True)

    async def grant(self, seconds: int) -> LeaseGrantResponse:
        """Create a new etcd lease."""
        return await self._once(GRANT, LeaseGrantRequest(ttl=seconds), LeaseGrantResponse)

    async def revoke(self, id: int) -> None:
        """End a lease. If the call fails, the lease expires by time."""
        try:
            await self._once(REVOKE, LeaseRevokeRequest(id=id), LeaseRevokeResponse)
        except HeadwayError:
            return

    async def keep_alive(self, id: int) -> int:
        """Renew a lease. Return the seconds until it expires, or 0 if it has already expired."""
        with trio.move_on_after(CALL_TIMEOUT):
            try:
                return await self._with_token(lambda: self._kept(id))
            except HeadwayError as error:
                if call_of(error) is None:
                    raise
                raise failure(error, self.where, writes=False) from error
        raise Unavailable(f"timed out: etcd at {self.where} has not renewed a lease within {CALL_TIMEOUT} s")

    async def _kept(self, id: int) -> int:
        request = LeaseKeepAliveRequest(id=id)
        async with self._channel.stream(KEEP_ALIVE, request, metadata=self._metadata) as replies:
            async for reply in replies:
                left: int = reply.ttl
                return left
        raise Interrupted(Code.UNAVAILABLE, "a lease renewal was not answered")

    @asynccontextmanager
    async def watch(self, request: WatchCreateRequest) -> AsyncIterator[Duplex]:
        """Open a watch for the length of the block. Its failures are raised in the block as Headway's errors."""
        if self._address.user and "token" not in self._metadata:
            await self._authenticate(None)
        used = self._metadata.get("token")
        try:
            opening: AbstractAsyncContextManager[Duplex]
            opening = self._channel.duplex(WATCH, WatchRequest(create_request=request), metadata=self._metadata)
            async with opening as replies:
                yield replies
        except HeadwayError as error:
            if call_of(error) is None:
                raise
            if wants_new_token(error):
                await self._authenticate(used)
            raise failure(error, self.where, writes=False) from error

    async def _read(self, path: str, request: object, reply_type: type[Reply]) -> Reply:
        for attempt in range(1, _READS):
            try:
                return await self._with_token(lambda: self._unary(path, request, reply_type))
            except HeadwayError as error:
                if call_of(error) is None:
                    raise
                if not may_be_asked_again(error):
                    raise failure(error, self.where, writes=False) from error
            await trio.sleep(_WAIT * attempt)
        return await self._once(path, request, reply_type)

    async def _once(self, path: str, request: object, reply_type: type[Reply], *, writes: bool = False) -> Reply:
        try:
            if not self._address.user:
                return await self._channel.unary(path, request, reply_type, metadata=_REQUIRE_LEADER)
            return await self._with_token(lambda: self._unary(path, request, reply_type))
        except HeadwayError as error:
            if call_of(error) is None:
                raise
            raise failure(error, self.where, writes=writes) from error

    def _unary(self, path: str, request: object, reply_type: type[Reply]) -> Coroutine[Any, Any, Reply]:
        return self._channel.unary(path, request, reply_type, metadata=self._metadata)

    async def _with_token(self, call: Callable[[], Coroutine[Any, Any, Reply]]) -> Reply:
        """Call, with a token if there is a user. Repeat a call that failed only because of its token."""
        if not self._address.user:
            return await call()
        used = self._metadata.get("token")
        if used is not None:
            try:
                return await call()
            except HeadwayError as error:
                if not wants_new_token(error):
                    raise
        await self._authenticate(used)
        return await call()

    async def _authenticate(self, used: str | None) -> None:
        """Get a new token, unless another task has already replaced the used one."""
        async with self._authenticating:
            if self._metadata.get("token") != used:
                return
            request = AuthenticateRequest(name=self._address.user, password=self._address.secret())
            try:
                reply = await self._channel.unary(AUTHENTICATE, request, AuthenticateResponse)
            except HeadwayError as error:
                if call_of(error) is None:
                    raise
                if code_of(error) is Code.INVALID_ARGUMENT:
                    text = f"etcd at {self.where} refuses user {self._address.user!r}: {said(error)}"
                    raise StoreUnusable(text) from error
                raise failure(error, self.where, writes=False) from error
            self._metadata = {**_REQUIRE_LEADER, "token": reply.token}


@asynccontextmanager
async def open_client(address: EtcdAddress, tls: ssl.SSLContext | None) -> AsyncIterator[EtcdClient]:
    """Open a client for the length of the block. ``tls`` takes precedence over the address."""
    if tls is None and address.tls:
        try:
            tls = client_tls(address.ca, certificate=address.certificate, key=address.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(each for each in (address.ca, address.certificate, address.key) if each)
            raise StoreUnusable(f"the certificates of {address} ({files}) can't be used: {error}") from error
    if address.user and not address.insecure and (host := plain_text_host(address.endpoints, tls)):
        remedy = "use TLS (tls=1 in the url), or add insecure=1"
        raise StoreUnusable(f"{address} can't be opened: {readable('a password', host, remedy)}")
    async with open_channel(
        [str(each) for each in address.endpoints],
        tls=tls,
        server_name=address.server_name,
        decoders={WATCH: _WatchDecoder, KEEP_ALIVE: _KeepAliveDecoder},
        limits=LIMITS,
        timeout=CALL_TIMEOUT,
        connect_timeout=3.0,
        avoids=is_behind,
        insecure=address.insecure,
    ) as channel:
        yield EtcdClient(channel, address)


class _WatchDecoder:
    """A decoder that delivers all responses received together as one list. Under load it holds many commits."""

    def __call__(self, bodies: list[bytes]) -> list[list[WatchResponse]]:
        return [[decode(WatchResponse, body) for body in bodies]]


class _KeepAliveDecoder:
    def __call__(self, bodies: list[bytes]) -> list[LeaseKeepAliveResponse]:
        return [decode(LeaseKeepAliveResponse, body) for body in bodies]
