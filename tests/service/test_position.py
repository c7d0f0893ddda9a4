"""The position of the store, for callers with a right to the type that they read."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from grpclib.const import Status

from headway._gen.headway.store import v1 as store_pb
from headway.access import Access, Authorizer, Guarded, Policy, Rule, new_token
from headway.errors import InvalidArgument, PermissionDenied, StoreRolledBack, Unavailable
from headway.events import ignore
from headway.informers import Informers
from headway.pauses import PAUSE
from headway.resource import Position, ResourceType, pb
from headway.rpc import Channel, InProcessChannel, WithMetadata, token_metadata
from headway.service import POSITION, ResourceService, StoreService
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, at, refused
from tests.helpers.declared import CHILD, NOTE, UNKNOWN, Note, a_note, a_type, registry


async def asked(
    channel: Channel, type: pb.Type | None, known: Position | None = None, token: str = ""
) -> store_pb.PositionResponse:
    request = store_pb.PositionRequest(type=type, known=None if known is None else known.message())
    metadata = {"x-consul-token": token} if token else {}
    return await channel.unary(POSITION, request, store_pb.PositionResponse, metadata=metadata)


async def read_by_cache(channel: Channel, type: ResourceType[Note], known: Position | None = None) -> Position:
    # In use, an informer would run in the nursery. Here only the position is read.
    async with trio.open_nursery() as nursery:
        informers = Informers(channel, nursery, ignore)
    return await informers.linearizable(type, known)


async def test_position_includes_every_acknowledged_commit(anywhere: Calls) -> None:
    """This holds even if the type has no resources."""
    for name in ("one", "two"):
        await anywhere.write(a_note(name))
        for type in (NOTE, CHILD):
            assert at((await asked(anywhere.channel, a_type(type))).position) == anywhere.backend.position
    assert await read_by_cache(anywhere.channel, NOTE) == anywhere.backend.position


async def test_error_of_the_programs_own_code_is_no_answer_of_the_server(in_memory: Calls) -> None:
    """A token's function has failed, before anything was sent, and would fail again."""
    channel = WithMetadata(in_memory.channel, token_metadata(lambda: "hw_1\nx") or {})
    with pytest.raises(InvalidArgument, match="invalid token"):
        await read_by_cache(channel, NOTE)


async def test_known_position_of_another_history_is_refused(anywhere: Calls) -> None:
    """A store that was rolled back and has been written to since does not have the known position in its history."""
    here = anywhere.backend.position
    assert at((await asked(anywhere.channel, a_type(), here)).position) == here
    lost = here._replace(session="lost")
    await refused(asked(anywhere.channel, a_type(), lost), Status.DATA_LOSS, f"position {lost.revision}")
    with pytest.raises(StoreRolledBack, match="has lost data that it delivered"):
        await read_by_cache(anywhere.channel, NOTE, lost)


async def test_invalid_request_for_the_position_is_refused(in_memory: Calls) -> None:
    channel = in_memory.channel
    long = in_memory.backend.position._replace(session="x" * 300)
    await refused(asked(channel, None), Status.INVALID_ARGUMENT, "type is required")
    await refused(asked(channel, a_type(UNKNOWN)), Status.INVALID_ARGUMENT, "is not registered")
    await refused(asked(channel, a_type(), long), Status.INVALID_ARGUMENT, "known.incarnation")


async def test_position_needs_a_right_to_the_type() -> None:
    """Any right is enough: the answers to all other calls have a position, too."""
    text, token = new_token(["notes"])
    rule = Rule(verbs=["delete"], type="tests.v1.Note", partition="a", namespace="b", name_prefix="c")
    access = Authorizer(Access([Policy("notes", [rule])], [token]))
    channel = InProcessChannel(Guarded(partial(StoreService, MemoryBackend(), registry()), access, registry()))
    assert at((await asked(channel, a_type(), token=text)).position).revision == 0
    await refused(asked(channel, a_type(CHILD), token=text), Status.PERMISSION_DENIED, "none of your rules covers type")
    await refused(asked(channel, a_type()), Status.PERMISSION_DENIED, "none of your rules covers type")
    with pytest.raises(PermissionDenied, match=r"reading the store's position needs a right to tests.v1.Note"):
        await read_by_cache(channel, NOTE)


async def test_position_needs_a_policy_if_the_type_is_pause() -> None:
    """Everyone knows this type, so that knowing it is no right: a caller without a policy may not see its resources."""
    text, token = new_token(["notes"])
    rule = Rule(verbs=["delete"], type="tests.v1.Note", partition="a", namespace="b")
    access = Authorizer(Access([Policy("notes", [rule])], [token]))
    channel = InProcessChannel(Guarded(partial(StoreService, MemoryBackend(), registry()), access, registry()))
    assert at((await asked(channel, a_type(PAUSE), token=text)).position).revision == 0
    await refused(
        asked(channel, a_type(PAUSE)), Status.PERMISSION_DENIED, "none of your rules covers type pause.v1.Pause"
    )


async def test_server_without_positions_is_named_as_too_old() -> None:
    """The error says how to solve the problem."""
    channel = InProcessChannel(ResourceService(MemoryBackend(), registry()))
    with pytest.raises(Unavailable, match=r"does not serve the position of its store \(.*\): update the server"):
        await read_by_cache(channel, NOTE)
