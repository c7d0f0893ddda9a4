"""`Client.create` never replaces a resource, and resolves unknown outcomes of its creations. Nor does `apply_over`."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock
from typing_extensions import override

from headway.api import Code, NotBegun
from headway.client import Client
from headway.errors import (
    AlreadyExists,
    Conflict,
    Fenced,
    HeadwayError,
    InvalidArgument,
    NotHeadway,
    OutcomeUnknown,
    PermissionDenied,
    Unavailable,
)
from headway.resource import FINALIZERS, pb
from headway.rpc import Channel, PassingChannel
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, Interrupted
from tests.helpers.declared import NOTE, Note, a_note, registry
from tests.helpers.heard_writes import Heard
from tests.helpers.service_errors import failed

LOST = failed(Status.UNAVAILABLE, "connection lost")


class Losing(PassingChannel):
    """A channel with a script. Each entry says whether a call reaches the service, and which error ends the call."""

    remote = True

    def __init__(self, inner: Channel, *script: tuple[bool, HeadwayError | None]) -> None:
        super().__init__(inner)
        self.script = list(script)
        self.times: list[float] = []

    @override
    async def unary(self, *call: Any, **options: Any) -> Any:
        self.times.append(trio.current_time())
        reaches, error = self.script.pop(0) if self.script else (True, None)
        reply = await super().unary(*call, **options) if reaches else None
        if error is not None:
            raise error
        return reply


@pytest.fixture
def calls() -> Calls:
    return Calls(MemoryBackend(), registry())


def client_of(calls: Calls, *script: tuple[bool, HeadwayError | None]) -> tuple[Client, Losing]:
    channel = Losing(calls.channel, *script)
    return Client(channel, registry()), channel


async def test_create_refuses_a_taken_name(calls: Calls) -> None:
    """AlreadyExists is also a Conflict. A `write` of a new resource would replace the stored one."""
    client, _ = client_of(calls)
    first = await client.create(NOTE.new("one", Note(text="a")))
    with pytest.raises(AlreadyExists, match="Note one already exists") as caught:
        await client.create(NOTE.new("one", Note(text="b")))
    assert isinstance(caught.value, Conflict)
    assert await client.read(NOTE, "one") == first
    with pytest.raises(InvalidArgument, match=r"has been read, at version 1: create\(\) takes what TYPE.new"):
        await client.create(first)


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_creation_is_repeated_after_a_lost_reply(calls: Calls, autojump_clock: MockClock, lost: int) -> None:
    """The client's own creation counts as success, once, even if the resource has been changed in the meantime."""
    assert autojump_clock.autojump_threshold == 0
    client, channel = client_of(calls, *[(True, LOST)] * lost)
    async with trio.open_nursery() as nursery:

        async def meanwhile() -> None:
            await trio.sleep(0.05)
            await calls.write(a_note("one", "b"))

        nursery.start_soon(meanwhile)
        created = await client.create(NOTE.new("one", Note(text="a")))
    assert created.data.text == "b"
    assert calls.revision == 2
    assert channel.times == [0.0, 0.1, 0.6, 2.6][: lost + 1]


async def test_second_attempt_creates_if_the_first_never_arrived(calls: Calls, autojump_clock: MockClock) -> None:
    """The first request is lost before it reaches the server."""
    assert autojump_clock.autojump_threshold == 0
    client, _ = client_of(calls, (False, LOST))
    assert (await client.create(NOTE.new("one", Note(text="a")))).data.text == "a"


async def test_create_does_not_claim_a_resource_of_another_writer(calls: Calls, autojump_clock: MockClock) -> None:
    """The first attempt was lost, and in the meantime the other writer stored the same name and content."""
    assert autojump_clock.autojump_threshold == 0
    client, channel = client_of(calls, (False, LOST))
    rival, _ = client_of(calls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rival.create, NOTE.new("one", Note(text="a")))
        with pytest.raises(AlreadyExists):
            await client.create(NOTE.new("one", Note(text="a")))
    assert len(channel.times) == 2


async def test_creation_that_stays_unknown_raises_outcome_unknown(calls: Calls, autojump_clock: MockClock) -> None:
    """The error comes after four attempts, even if the later ones certainly had no effect."""
    assert autojump_clock.autojump_threshold == 0
    not_begun = NotBegun(Code.UNAVAILABLE, "no server was reached")
    client, channel = client_of(calls, (True, LOST), *[(False, not_begun)] * 3)
    with pytest.raises(OutcomeUnknown, match=r"connection lost; sent again: .*no server was reached") as raised:
        await client.create(NOTE.new("one"))
    assert str(raised.value).count("sent again") == 1
    assert len(channel.times) == 4
    client, channel = client_of(calls, (False, not_begun))
    with pytest.raises(Unavailable):
        await client.create(NOTE.new("two"))
    assert len(channel.times) == 1


async def test_refusal_of_a_repetition_leaves_the_outcome_unknown(calls: Calls, autojump_clock: MockClock) -> None:
    """The first attempt has stored the resource, and its reply was lost. Then the caller's token was revoked."""
    assert autojump_clock.autojump_threshold == 0
    revoked = failed(Status.PERMISSION_DENIED, "your token is not valid here")
    client, channel = client_of(calls, (True, LOST), (False, revoked))
    with pytest.raises(OutcomeUnknown, match=r"connection lost; sent again: .*your token is not valid here"):
        await client.create(NOTE.new("one"))
    assert len(channel.times) == 2
    assert calls.revision == 1
    client, _ = client_of(calls, (False, revoked))
    with pytest.raises(PermissionDenied):
        await client.create(NOTE.new("two"))


async def test_client_of_a_controller_does_not_repeat_a_creation(calls: Calls) -> None:
    """Only the run can raise the fence that rejects a late write."""
    channel = Losing(calls.channel, (True, LOST))
    heard = Heard()
    with pytest.raises(OutcomeUnknown):
        await Client(channel, registry(), heard).create(NOTE.new("one"))
    assert len(heard.unknowns) == len(channel.times) == 1


async def test_fenced_creation_is_refused(calls: Calls) -> None:
    """The same holds for every other write of a superseded run."""
    for _ in range(2):
        await calls.raise_fence("app/c")
    fence = pb.Fence(controller="app/c", term=1)
    with pytest.raises(Fenced):
        await Client(calls.channel, registry(), Heard(fence)).create(NOTE.new("one"))


class Older(Losing):
    """A server that does not know the create_only field."""

    @override
    async def unary(self, path: str, request: Any, *rest: Any, **options: Any) -> Any:
        if isinstance(request, pb.WriteRequest):
            request.create_only, request.create_token = False, ""
        return await super().unary(path, request, *rest, **options)


async def test_server_without_create_only_writes_is_reported(calls: Calls) -> None:
    """The server may have replaced a resource, so the caller must not assume that the name was free."""
    await calls.write(a_note("one", "theirs"))
    with pytest.raises(NotHeadway, match=r"does not support create-only writes.*may have replaced"):
        await Client(Older(calls.channel), registry()).create(NOTE.new("one"))


async def test_apply_over_nothing_replaces_nothing(calls: Calls) -> None:
    """Another writer has created the resource since it was read as absent."""
    client, _ = client_of(calls)
    theirs = await client.write(NOTE.new("one", Note(text="theirs")))
    with pytest.raises(AlreadyExists):
        await client.apply_over(None, NOTE.new("one", Note(text="mine")))
    assert await client.read(NOTE, "one") == theirs


async def test_apply_reads_again_if_another_writer_creates_the_resource(calls: Calls) -> None:
    """Between its read and its write. It keeps that writer's finalizers, as it does without the race."""
    interrupted = Interrupted(calls.backend)
    client = Client(Calls(interrupted, registry()).channel, registry())

    async def other() -> None:
        await calls.write(a_note("one", "theirs", metadata={FINALIZERS: "their.finalizer"}))

    interrupted.before_commit = [other]
    applied = await client.apply(NOTE.new("one", Note(text="mine")))
    assert (applied.data.text, applied.finalizers) == ("mine", frozenset({"their.finalizer"}))
