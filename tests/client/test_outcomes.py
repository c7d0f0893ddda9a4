"""Failed calls: their typed errors, whether a write may be stored, and the reports to the owner of the writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway import errors
from headway._gen.headway.refusal.v1 import Refusal
from headway.api import Reason
from headway.client import Client, LeaseClient, client_error
from headway.errors import Fenced, HeadwayError, OutcomeUnknown, RateLimited, StoreUnusable, Unavailable, UnknownTerm
from headway.protobuf import encode
from headway.resource import AnyMessage, Position, Resource, ResourceId, pb
from headway.rpc import Metadata
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls
from tests.helpers.declared import NOTE, REGION, Note, registry
from tests.helpers.heard_writes import Heard
from tests.helpers.service_errors import failed

ALWAYS = {
    Status.INVALID_ARGUMENT: errors.InvalidArgument,
    Status.NOT_FOUND: errors.NotFound,
    Status.ABORTED: errors.Conflict,
    Status.ALREADY_EXISTS: errors.AlreadyExists,
    Status.FAILED_PRECONDITION: errors.FailedPrecondition,
    Status.PERMISSION_DENIED: errors.PermissionDenied,
    Status.UNAUTHENTICATED: errors.Unauthenticated,
    Status.OUT_OF_RANGE: errors.HistoryCompacted,
    Status.UNIMPLEMENTED: errors.NotHeadway,
}


class Failing:
    """A channel whose calls end as scripted. A write is stored before its call ends."""

    def __init__(self, ending: BaseException | object, *, knows_outcomes: bool = False) -> None:
        self.ending = ending
        self.knows_outcomes = knows_outcomes
        self.requests: list[Any] = []

    async def unary(
        self, path: str, request: object, reply_type: type[Any], *, metadata: Metadata | None = None
    ) -> Any:
        assert (path[0], metadata) == ("/", {})
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        if isinstance(self.ending, BaseException):
            raise self.ending
        return reply_type() if self.ending is None else self.ending

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        assert (path[0], metadata) == ("/", {})
        self.requests.append(request)
        return self._fail()

    @asynccontextmanager
    async def _fail(self) -> AsyncIterator[AsyncIterator[Any]]:
        await trio.lowlevel.checkpoint()
        assert isinstance(self.ending, BaseException)
        raise self.ending
        yield  # makes it a generator, as the decorator requires


def held() -> Resource[Note]:
    return NOTE.view(pb.Resource(id=NOTE.id("one", uid="uid").message()))


WRITES: dict[str, Callable[[Client], Awaitable[object]]] = {
    "write": lambda client: client.write(NOTE.new("one")),
    "apply_over": lambda client: client.apply_over(None, NOTE.new("one")),
    "write_status": lambda client: client.write_status(held(), "mine", []),
    "delete": lambda client: client.delete(NOTE.id("one")),
}
READS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "read": lambda client: client.read(NOTE, "one"),
    "list": lambda client: client.list(NOTE),
    "list_by_owner": lambda client: client.list_by_owner(NOTE.id("one", uid="uid")),
}


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.OK], ids=lambda each: each.name)
@pytest.mark.parametrize("way", [*WRITES, *READS])
async def test_every_status_maps_to_a_typed_error(way: str, status: Status) -> None:
    """A status that is only given before any effect has the same error for writes.

    Any other status makes a write unknown.
    """
    heard = Heard()
    client = Client(Failing(failed(status, "why")), registry(), heard)
    with pytest.raises(HeadwayError, match="why") as caught:
        await (WRITES | READS)[way](client)
    assert caught.value.__cause__ is not caught.value
    if status in ALWAYS:
        assert type(caught.value) is ALWAYS[status]
    elif way in WRITES:
        assert type(caught.value) is OutcomeUnknown
    elif status is Status.DATA_LOSS:
        assert type(caught.value) is errors.StoreChanged
    else:
        assert type(caught.value) is Unavailable
    assert heard.unknowns == ([caught.value] if type(caught.value) is OutcomeUnknown else [])
    assert heard.acknowledgements == []


@pytest.mark.parametrize("way", WRITES)
async def test_write_that_a_limit_refuses_is_certainly_not_stored(way: str) -> None:
    """No key of its controller is held back for it."""
    heard = Heard()
    client = Client(Failing(RateLimited("too many calls", 7.0)), registry(), heard)
    with pytest.raises(errors.RateLimited, match="too many calls") as caught:
        await WRITES[way](client)
    assert caught.value.retry_after == 7.0
    assert heard.unknowns == []


async def test_write_that_has_waited_for_its_turn_carries_the_fence_of_that_moment() -> None:
    """The fence may be raised during the wait. With the earlier one, the write would be refused."""
    heard = Heard(pb.Fence(controller="staff/teams", term=1), "before")

    class Turns:
        async def wait(self) -> None:
            heard.fence, heard.store_id = pb.Fence(controller="staff/teams", term=1, number=2), "after"

    heard.governor = Turns()
    channel = Failing(failed(Status.NOT_FOUND, "why"))
    client = Client(channel, registry(), heard)
    for way in WRITES.values():
        with pytest.raises(errors.NotFound):
            await way(client)
    assert {(each.fence.number, each.store_id) for each in channel.requests} == {(2, "after")}


def refused_for(reason: Reason, message: str) -> HeadwayError:
    """Return a refusal with a reason, as a service sends it."""
    url = "type.googleapis.com/headway.refusal.v1.Refusal"
    detail = AnyMessage(type_url=url, value=encode(Refusal(reason=reason)))
    return failed(Status.FAILED_PRECONDITION, message, [detail])


def test_write_of_an_unknown_term_raises_unknown_term() -> None:
    """The error is also a Fenced, for callers that only handle superseded runs."""
    error = client_error(refused_for(Reason.UNKNOWN_TERM, "term 3"), write=True)
    assert type(error) is UnknownTerm
    assert isinstance(error, Fenced)
    assert str(error) == "term 3"


def test_error_without_a_message_has_the_name_of_its_status() -> None:
    """Otherwise, a log line would be empty."""
    assert str(client_error(failed(Status.NOT_FOUND))) == "NOT_FOUND"


async def test_unavailable_means_no_effect_only_if_the_channel_knows_outcomes(backend: MemoryBackend) -> None:
    """Over a network, the same status may mean that a reply was lost."""
    for settles, expected in ((True, Unavailable), (False, OutcomeUnknown)):
        client = Client(
            Failing(failed(Status.UNAVAILABLE, "why"), knows_outcomes=settles), registry(), heard := Heard()
        )
        with pytest.raises(HeadwayError) as caught:
            await client.write(NOTE.new("one"))
        assert type(caught.value) is expected
        assert len(heard.unknowns) == (not settles)

    class Broken(MemoryBackend):
        async def commit(self, *_: object) -> Position:
            raise StoreUnusable("the disk is full. Nothing was written")

    with pytest.raises(Unavailable, match="the disk is full"):
        await Client(Calls(Broken(), registry()).channel, registry()).write(NOTE.new("one"))
    assert backend.position.revision == 0


@pytest.mark.parametrize("broken", ["read", "list", "list_by_owner"])
async def test_store_that_cannot_be_read_raises_unavailable(broken: str) -> None:
    """The error is not reported as an unexpected error of the service."""

    class Broken(MemoryBackend):
        async def _fail(self, *_: object, **__: object) -> Any:
            raise StoreUnusable("the store is closed")

        read = watch = list_by_owner = _fail  # every way to read: a list is the beginning of a watch

    calls = Calls(Broken(), registry())
    with pytest.raises(Unavailable, match="the store is closed"):
        await READS[broken](Client(calls.channel, registry()))
    assert calls.unexpected == []


@pytest.mark.parametrize("way", WRITES)
async def test_crashed_handler_leaves_a_write_unknown(way: str) -> None:
    """The handler may have crashed before or after its commit."""

    class Broken(MemoryBackend):
        async def read(self, *_: object) -> Any:
            raise RuntimeError("a bug")

        def read_nowait(self, *_: object) -> Any:
            raise RuntimeError("a bug")

    calls = Calls(Broken(), registry())
    client = Client(calls.channel, registry(), heard := Heard())
    held = NOTE.view(pb.Resource(id=NOTE.id("one", uid="uid").message(), generation="01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    call = client.write_status(held, "mine", []) if way == "write_status" else WRITES[way](client)
    with pytest.raises(OutcomeUnknown, match="UNKNOWN: Internal Server Error"):
        await call
    assert len(heard.unknowns) == len(calls.unexpected) == 1


@pytest.mark.parametrize("way", WRITES)
async def test_canceled_write_is_unknown_unless_the_channel_knows_outcomes(way: str) -> None:
    """C5: in process, a cancellation comes before the commit or after the reply."""
    for settles in (True, False):
        client = Client(Failing(None, knows_outcomes=settles), registry(), heard := Heard())
        with trio.CancelScope() as scope:
            scope.cancel()
            await WRITES[way](client)
        assert scope.cancelled_caught
        assert heard.unknowns == ([] if settles else [None])
        assert heard.acknowledgements == []


@pytest.mark.parametrize("way", READS)
async def test_canceled_read_is_not_reported(way: str) -> None:
    """The read had no effect."""
    client = Client(Failing(None), registry(), heard := Heard())
    with trio.CancelScope() as scope:
        scope.cancel()
        await READS[way](client)
    assert scope.cancelled_caught
    assert heard.unknowns == []


@pytest.mark.parametrize("way", WRITES)
async def test_unexpected_exception_of_a_channel_leaves_a_write_unknown(way: str) -> None:
    """A channel should raise only GRPCErrors. Any other exception propagates."""
    client = Client(Failing(OSError("connection reset"), knows_outcomes=True), registry(), heard := Heard())
    with pytest.raises(OSError, match="connection reset"):
        await WRITES[way](client)
    assert heard.unknowns == [None]


@pytest.mark.parametrize("way", WRITES)
async def test_write_with_an_incomplete_reply_is_unknown(way: str) -> None:
    """A write without a position has no place in the order, and has not failed either."""
    resource = pb.Resource(id=NOTE.id("one", uid="uid").message())
    for reply in (None, pb.WriteResponse(resource=resource), pb.WriteResponse(position=pb.Position())):
        client = Client(Failing(reply), registry(), heard := Heard())
        if reply is not None and way == "delete":
            continue
        with pytest.raises(OutcomeUnknown, match="the reply to a write has no"):
            await WRITES[way](client)
        assert len(heard.unknowns) == 1
        assert heard.acknowledgements == []


@pytest.mark.parametrize("way", [each for each in WRITES if each != "apply_over"])
async def test_every_write_carries_the_fence_and_the_store_id(way: str) -> None:
    """The store checks both in the transaction. A rejection is reported together with its fence."""
    fence = pb.Fence(controller="painter", term=3)
    channel = Failing(refused_for(Reason.FENCED, "x"))
    with pytest.raises(Fenced):
        await WRITES[way](Client(channel, registry(), heard := Heard(fence, "here")))
    assert (heard.refusals, heard.unknowns) == ([fence], [])
    (request,) = channel.requests
    assert request.fence == fence
    assert request.store_id == "here"


async def test_write_is_acknowledged_without_a_checkpoint(calls: Calls) -> None:
    """C5: between the reply and the caller's next step, no other task can read a cache without the write."""
    heard, watching = Heard(), ExitStack()
    channel = Failing(None)

    async def answer(path: str, request: object, reply_type: type[Any], **_: object) -> Any:
        reply = await calls.channel.unary(path, request, reply_type)
        watching.enter_context(trio.testing.assert_no_checkpoints())
        return reply

    channel.unary = answer  # type: ignore[method-assign]  # from each answer on no checkpoint is allowed
    client = Client(channel, registry(), heard)
    resource = NOTE.new("one")
    resource.finalizers = {"a"}
    written = await client.write(resource)
    watching.close()
    for call in (
        lambda: client.write(NOTE.new("one", Note(text="x"))),
        lambda: client.write_status(written, "mine", []),
        lambda: client.delete(REGION.id("none")),
        lambda: client.delete(written),
    ):
        count = len(heard.acknowledgements)
        await call()
        watching.close()
        assert len(heard.acknowledgements) == count + 1
    types = [NOTE, NOTE, NOTE, REGION, NOTE]
    assert [type for type, *_ in heard.acknowledgements] == types
    last = heard.acknowledgements[-1]
    assert last[2] is not None
    assert last[2].version == str(last[3].revision)


async def test_acknowledgement_has_the_key_of_the_stored_resource(client: Client, calls: Calls) -> None:
    """The stored id may have tenancy units that the request left to the defaults."""
    heard = Heard()
    client = Client(calls.channel, registry(), heard)
    await client.delete(ResourceId(NOTE.name, "one"))
    await client.delete(ResourceId(REGION.name, "one"))
    await client.write(NOTE.new("one"))
    keys = [key for _, key, *_ in heard.acknowledgements]
    assert keys == [("default", "default", "one"), ("default", "", "one"), ("default", "default", "one")]
    assert [stored is None for _, _, stored, _ in heard.acknowledgements] == [True, True, False]
    assert [position.revision for *_, position in heard.acknowledgements] == [0, 0, 1]


async def test_lease_client_raises_fences_and_records_checkpoints(calls: Calls) -> None:
    """The lease client raises the same errors as the client."""
    lease = LeaseClient(calls.channel)
    first = await lease.raise_fence("painter", "here")
    assert (first.fence.term, first.position, first.checkpoint) == (1, calls.backend.position, 1)
    reached = (await lease.raise_fence("writer", "here")).position.revision
    await lease.record_checkpoint(first.fence, reached)
    second = await lease.raise_fence("painter", "here")
    assert (second.fence.term, second.checkpoint) == (2, reached)
    with pytest.raises(Fenced, match="the fence of painter#here is at"):
        await lease.raise_fence("painter", "here", term=1)
    with pytest.raises(Fenced):
        await lease.record_checkpoint(first.fence, 9)
    with pytest.raises(Unavailable, match="INTERNAL: why"):
        await LeaseClient(Failing(failed(Status.INTERNAL, "why"))).raise_fence("painter", "here")
    with pytest.raises(Unavailable, match="has no fence or no position"):
        await LeaseClient(Failing(None)).raise_fence("painter", "here")
