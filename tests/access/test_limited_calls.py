"""Calls over the network that a limit of the server refuses: what the caller gets, and what our clients do about it."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock

import headway
from headway.access import Access, Audit, Authorizer, Guarded, Limit, Policy, Rule, new_token
from headway.api import Call, Handler, Reason
from headway.client import Client
from headway.errors import HeadwayError, InvalidArgument, RateLimited
from headway.events import AccessChanged, CallLimited, ignore
from headway.observe import Metrics
from headway.protobuf import encode
from headway.resource import pb
from headway.rpc import InProcessChannel, open_channel, open_forwarder
from headway.service import ResourceService
from headway.storage import MemoryBackend
from tests.access.test_audit import Server as AuditServer
from tests.helpers.heard_writes import Heard
from tests.helpers.plain_types import Team
from tests.helpers.service_errors import reason_of, status_of

READ = "/headway.resource.v1.ResourceService/Read"
NEVER = 0.0001
"""Calls a second, so that a test waits for no second call."""
SOON = 0.1
"""Calls a second, so that a test in virtual time sees each wait."""


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
ALL = [
    Rule(verbs=["*"], type="*", partition="*", namespace="*"),
    Rule(verbs=["*"], type="internal.v1.Lease", partition="", namespace=""),
]


def limit(*categories: str, per_second: float = NEVER, burst: int = 1, **fields: Any) -> Limit:
    given = {"name": "some", "per": ["caller"], "policies": ["some"], **fields}
    return Limit(categories=categories, per_second=per_second, burst=burst, **given)


class Server:
    """An engine that listens, with two tokens, and the events about its callers."""

    def __init__(self, *limits: Limit) -> None:
        self.text, self.token = new_token(["some"], description="the deploy job")
        self.other, other = new_token(["other"])
        self._access = [Policy("some", ALL), Policy("other", ALL), Policy("anonymous", ALL)], [self.token, other]
        self.authorizer = Authorizer(Access(*self._access, limits=limits))
        self.metrics, self.events = Metrics(), list[CallLimited | AccessChanged]()
        self.writes = 0

    def limit(self, *limits: Limit) -> None:
        self.authorizer.replace(Access(*self._access, limits=limits))

    def report(self, event: object) -> None:
        self.metrics(event)
        if isinstance(event, CallLimited | AccessChanged):
            self.events.append(event)

    @asynccontextmanager
    async def client(self, token: str = "", where: str = "127.0.0.1:0") -> AsyncIterator[headway.Client]:
        """Connect with the first token, or with another one. The first call asks for the types of the server."""
        async with (
            headway.open_engine(
                "memory:", app, network=headway.Network([where], access=self.authorizer), report=self.report
            ) as self.engine,
            headway.connect(self.engine.addresses, app, token=token or self.text) as client,
        ):
            # It compares its types with the server's at its first call, which is a read, too.
            limits = self.authorizer.limiter.limits
            self.authorizer.limiter.replace([])
            await client.get(TEAM, "none")
            self.authorizer.limiter.replace(limits)
            yield client


async def refused(call: Callable[[], Any]) -> headway.errors.RateLimited:
    with pytest.raises(headway.errors.RateLimited) as raised:
        await call()
    return raised.value


async def test_h13_refused_write_has_done_nothing_and_names_the_limit_and_the_time() -> None:
    """A client gives up at once if the time is longer than the call may take, with a class of its own."""
    server = Server(limit("write", per_second=0.01))
    async with server.client() as client:
        await client.write(TEAM.new("core"))
        with trio.fail_after(10):
            error = await refused(lambda: client.write(TEAM.new("other")))
        assert isinstance(error, headway.errors.Unavailable)
        assert 90 < error.retry_after <= 100
        assert "limit some allows 0.01 write calls a second with a burst of 1, which each caller has" in str(error)
        assert pickle.loads(pickle.dumps(error)).retry_after == error.retry_after
        assert await server.engine.client.get(TEAM, "other") is None
        assert await client.get(TEAM, "core"), "reads are not limited"
        core = await client.read(TEAM, "core")
        await refused(lambda: client.delete(core))
        await refused(lambda: client.write_status(core, "a", []))


async def test_n7_client_waits_and_repeats_a_refused_call_until_it_succeeds(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """Even a write, because the refused one has certainly done nothing: each is stored once."""
    server = Server(limit("write", per_second=SOON))
    async with server.client(where=f"unix:{tmp_path}/socket") as client:
        began = autojump_clock.current_time()
        for number in range(4):
            await client.create(TEAM.new(f"team-{number}"))
        assert round(autojump_clock.current_time() - began, 6) >= round(3 / SOON, 6)
    assert sum(1 + each.suppressed for each in server.events if isinstance(each, CallLimited)) == 3


async def test_n7_list_and_watch_wait_and_are_opened_again(autojump_clock: MockClock, tmp_path: Path) -> None:
    server = Server(limit("watch", per_second=SOON))
    async with server.client(where=f"unix:{tmp_path}/socket") as client:
        await server.engine.client.write(TEAM.new("core"))
        began = autojump_clock.current_time()
        for _ in range(2):
            assert [each.name for each in await client.list(TEAM)] == ["core"]
            async with client.watch(TEAM) as events:
                assert isinstance(await anext(events), headway.client.Upserted)
                for note in "abc":
                    # The events of an open watch are not counted.
                    await server.engine.client.write(TEAM.new("core", Team(note=note)))
                    while not (
                        isinstance(event := await anext(events), headway.client.Upserted)
                        and event.resource.data.note == note
                    ):
                        pass
        assert round(autojump_clock.current_time() - began, 6) >= round(3 / SOON, 6)
    assert {each.category for each in server.events if isinstance(each, CallLimited)} == {"watch"}


async def test_refused_watch_is_an_error_when_the_time_is_too_long() -> None:
    server = Server(limit("watch"))
    async with server.client() as client:
        await client.list(TEAM)
        await refused(lambda: client.list(TEAM))
        async with client.watch(TEAM) as events:
            await refused(lambda: anext(events))
            await refused(lambda: anext(events))


async def test_deadline_of_the_caller_ends_the_wait(autojump_clock: MockClock, tmp_path: Path) -> None:
    """And the random part of the wait never takes the call past a deadline that it can meet."""
    server = Server(limit("read", per_second=SOON))
    async with server.client(where=f"unix:{tmp_path}/socket") as client:
        await client.get(TEAM, "core")
        began = autojump_clock.current_time()
        with trio.move_on_after(5) as scope:
            await client.get(TEAM, "core")
        assert scope.cancelled_caught
        assert autojump_clock.current_time() - began == pytest.approx(5)
        for _ in range(3):
            with trio.fail_after(10.5):
                await client.get(TEAM, "core")


async def test_n7_canceled_wait_of_a_refused_write_leaves_no_doubt_about_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """Its controller need not find out whether the write was stored. It does if the write was on its way."""
    server, heard = Server(limit("write", per_second=SOON)), Heard()
    async with (
        server.client(where=f"unix:{tmp_path}/socket") as client,
        open_channel(server.engine.addresses) as channel,
    ):
        writer = Client(channel, app.registry, heard, token=server.text)
        await client.write(TEAM.new("core"))
        with trio.move_on_after(5) as scope:
            await writer.write(TEAM.new("other"))
        assert scope.cancelled_caught
        assert heard.unknowns == []
        scope = trio.CancelScope()
        scope.cancel()
        with scope:
            await writer.write(TEAM.new("other"))
        assert heard.unknowns == [None]


async def test_calls_in_the_process_of_the_engine_are_never_limited() -> None:
    """Its controllers, their leases and the sweeps of deleted resources go on, and nothing is counted."""
    server = Server(limit("read", "write", "watch", per=[], policies=None))
    async with server.client():
        for number in range(50):
            await server.engine.client.write(TEAM.new(f"team-{number}"))
        assert len(await server.engine.client.list(TEAM)) == 50
    assert not [each for each in server.events if isinstance(each, CallLimited)]


async def test_n7_lease_is_renewed_however_strict_the_limits_are() -> None:
    server = Server(limit("read", "write", "watch", per=[], policies=None))
    async with server.client() as client:
        leases = client.leases
        taken = await leases.acquire("staff/reports", "web-1", ttl=30.0)
        for _ in range(20):
            await leases.keep_alive("staff/reports", "web-1", taken.term)
        assert [each.holder for each in await leases.list("staff/")] == ["web-1"]
        await leases.raise_fence("staff/other", "")
        await leases.release("staff/reports", "web-1", taken.term)
        await client.get(TEAM, "core")
        await refused(lambda: client.get(TEAM, "core"))


async def test_limits_change_while_the_server_runs() -> None:
    server = Server(limit("read"))
    async with server.client() as client:
        await client.get(TEAM, "core")
        await refused(lambda: client.get(TEAM, "core"))
        server.limit()
        for _ in range(10):
            await client.get(TEAM, "core")
        server.limit(limit("write"))
        await client.get(TEAM, "core")
        await client.write(TEAM.new("core"))
        await refused(lambda: client.write(TEAM.new("core")))
    changes = [each for each in server.events if isinstance(each, AccessChanged)]
    assert changes == [AccessChanged((), (), 0, ("some",))] * 2


async def test_limited_calls_are_reported_and_counted_by_limit_and_kind_of_caller() -> None:
    server = Server(limit("read"))
    async with server.client() as client:
        await client.get(TEAM, "core")
        for _ in range(3):
            await refused(lambda: client.get(TEAM, "core"))
    (event, *_) = server.events
    assert isinstance(event, CallLimited)
    assert (event.limit, event.category, event.path) == ("some", "read", READ)
    assert event.caller == f"{server.token.accessor} (the deploy job)"
    assert event.peer.startswith("127.0.0.1:")
    assert event.seconds == pytest.approx(1 / NEVER, rel=0.01)
    line = 'headway_calls_limited_total{caller="token",category="read",limit="some"} '
    assert line in server.metrics.text().decode()
    assert "hw_" not in str(vars(event))


async def test_stock_client_gets_googles_retry_info_and_grpcs_pushback() -> None:
    """A gRPC client with a retry policy for RESOURCE_EXHAUSTED repeats the call after the time of the trailer."""
    server = Server(limit("read"))
    async with server.client() as client:
        await client.get(TEAM, "core")

        def call() -> grpc.RpcError:
            with grpc.insecure_channel(server.engine.addresses[0]) as channel:
                read = channel.unary_unary(READ, lambda data: data, lambda data: data)
                try:
                    read(b"", metadata=(("x-consul-token", server.text),))
                except grpc.RpcError as error:
                    return error
            raise AssertionError("the call succeeded")

        error: Any = await trio.to_thread.run_sync(call)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers = dict(error.trailing_metadata())
    assert 0 < int(trailers["grpc-retry-pushback-ms"]) <= 1000 / NEVER
    details = trailers["grpc-status-details-bin"]
    assert b"type.googleapis.com/google.rpc.RetryInfo" in details
    assert b"type.googleapis.com/headway.refusal.v1.Refusal" in details


async def test_limit_is_checked_before_rights_and_before_the_handler() -> None:
    """Denied calls count, too: a caller that is limited can make no more of them than others."""
    server = AuditServer()
    authorizer = Authorizer(Access([Policy("some", [])], [server.token], limits=[limit("read", "write", burst=2)]))
    served: list[object] = []

    def serve(caller: object) -> ResourceService:
        served.append(caller)
        return ResourceService(MemoryBackend(), app.registry, caller)  # type: ignore[arg-type]

    channel = InProcessChannel(Guarded(serve, authorizer, app.registry, Audit(ignore)))
    client = Client(channel, app.registry, token=server.text)
    for _ in range(2):
        with pytest.raises(headway.errors.PermissionDenied):
            await client.write(TEAM.new("core"))
    with pytest.raises(headway.errors.RateLimited):
        await client.write(TEAM.new("core"))
    with pytest.raises(headway.errors.RateLimited):
        await client.read(TEAM, "core")
    with pytest.raises(headway.errors.PermissionDenied, match="not valid here"):
        await Client(channel, app.registry, token=server.text[:-1]).read(TEAM, "core")


async def test_error_of_a_channel_says_that_nothing_was_done_and_for_which_reason() -> None:
    server = Server(limit("read"))
    async with server.client() as client, open_channel(server.engine.addresses[0]) as channel:
        await client.get(TEAM, "core")
        with pytest.raises(HeadwayError) as raised:
            await channel.unary(READ, pb.ReadRequest(), pb.ReadResponse, metadata={"x-consul-token": server.text})
    assert isinstance(raised.value, RateLimited)
    assert status_of(raised.value) is Status.RESOURCE_EXHAUSTED
    assert reason_of(raised.value) is Reason.LIMITED


async def _ended(handler: Handler) -> tuple[type[Exception], int]:
    """Return how a call without a valid request has ended, and how often its request was received."""
    assert handler.admit is not None
    received = 0
    try:
        async with handler.admit(call := Call()):
            received += 1
            await handler.func(call, pb.ReadRequest())
    except (RateLimited, InvalidArgument) as error:
        return type(error), received
    raise AssertionError


async def test_refused_request_is_not_even_received_unless_the_limit_depends_on_it() -> None:
    """A flood of large requests costs the server no more than their headers."""

    for partition, received in (("*", 0), ("sales", 1)):
        given = limit("read", policies=None, burst=1, partition=partition)
        authorizer = Authorizer(Access(limits=[given]))
        service = partial(ResourceService, MemoryBackend(), app.registry)
        guarded = Guarded(service, authorizer, app.registry)
        read = guarded.__mapping__()[READ]
        for _ in range(2):
            ended = await _ended(read)
        assert ended == (InvalidArgument if received else RateLimited, received)


async def test_refusal_passes_a_forwarder() -> None:
    """Its clients can tell, too, that nothing was done."""
    server = Server(limit("read"))
    async with (
        server.client() as client,
        open_forwarder(server.engine.addresses, ["127.0.0.1:0"]) as forwarder,
        open_channel(forwarder.addresses[0]) as channel,
    ):
        await client.get(TEAM, "core")
        with pytest.raises(RateLimited) as raised:
            await channel.unary(READ, pb.ReadRequest(), pb.ReadResponse, metadata={"x-consul-token": server.text})
        assert raised.value.retry_after > 1
        assert reason_of(raised.value) is Reason.LIMITED


@pytest.mark.wide
async def test_stock_client_with_a_retry_policy_repeats_the_call_after_that_time() -> None:
    """The policy names the status, as for any server; the trailer says when."""
    server = Server(limit("read", per_second=0.5))
    policy = """{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "60s",
        "maxBackoff": "60s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}"""
    async with server.client() as client:
        await client.write(TEAM.new("core"))
        request = encode(pb.ReadRequest(id=TEAM.id("core").message()))
        await client.get(TEAM, "core")

        def call() -> bytes:
            options = [("grpc.service_config", policy), ("grpc.enable_retries", 1)]
            with grpc.insecure_channel(server.engine.addresses[0], options=options) as channel:
                read = channel.unary_unary(READ, lambda data: data, lambda data: data)
                found: bytes = read(request, metadata=(("x-consul-token", server.text),), timeout=30)
                return found

        answer = await trio.to_thread.run_sync(call)
    assert b"core" in answer
    assert [each for each in server.events if isinstance(each, CallLimited)]
