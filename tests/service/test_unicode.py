"""A text that UTF-8 cannot encode is refused before it is stored: no network client could read its type any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from grpclib.const import Status

import headway
from headway.errors import InvalidArgument, OutcomeUnknown
from headway.events import ignore
from headway.resource import pb
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import ULID, a_note, a_status, an_id
from tests.helpers.resources import Team

HALF = "caf\udce9"  # as os.fsdecode() returns it for a name of a file in Latin-1

CALLS: dict[str, tuple[str, Callable[[Calls], Any]]] = {
    "a metadata key": (f"resource.metadata: key {HALF!r}", lambda it: it.write(a_note(metadata={HALF: ""}))),
    "a metadata value": (f"resource.metadata['k'] {HALF!r}", lambda it: it.write(a_note(metadata={"k": HALF}))),
    "a status key": (f"resource.status: key {HALF!r}", lambda it: it.write(a_note(status={HALF: a_status()}))),
    "a condition's type": ("status.conditions[0].type", lambda it: _with(it, type=HALF)),
    "a condition's reason": ("status.conditions[0].reason", lambda it: _with(it, type="a", reason=HALF)),
    "a condition's message": ("status.conditions[0].message", lambda it: _with(it, type="a", message=HALF)),
    "a section": (
        "status.conditions[0].resource.section",
        lambda it: _with(it, type="a", resource=pb.Reference(section=HALF)),
    ),
    "an owner's uid": ("resource.owner.uid", lambda it: it.write(a_note(owner=an_id(uid=HALF)))),
}


def _with(calls: Calls, **fields: Any) -> Any:
    status = pb.Status(observed_generation=ULID, conditions=[pb.Condition(**fields)])
    return calls.write_status(an_id(uid=ULID), status)


@pytest.mark.parametrize("what", CALLS)
async def test_text_that_cannot_be_encoded_is_refused_with_its_field(in_memory: Calls, what: str) -> None:
    field, call = CALLS[what]
    before = in_memory.revision
    await refused(call(in_memory), Status.INVALID_ARGUMENT, field, "has half of a surrogate pair")
    assert in_memory.revision == before


async def test_metadata_of_a_mutate_hook_is_checked_before_it_is_stored() -> None:
    def mutate(team: headway.Resource[Team]) -> None:
        team.metadata["path"] = HALF

    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team, hooks=headway.Hooks(mutate=mutate))
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        with pytest.raises(headway.HeadwayError) as caught:
            await engine.client.write(team.new("core"))
        assert not isinstance(caught.value, OutcomeUnknown)
        assert await engine.client.list(team) == []


async def test_refusal_by_a_hook_reaches_a_network_client_whatever_its_text() -> None:
    """The stream was reset before, so that a write that was certainly refused had an unknown outcome."""

    def validate(_: headway.Resource[Team]) -> None:
        raise ValueError(f"no such file: {HALF}")

    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team, hooks=headway.Hooks(validate=validate))
    async with (
        headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True), report=ignore
        ) as engine,
        headway.connect(engine.addresses, app) as client,
    ):
        for each in (client, engine.client):
            with trio.fail_after(5), pytest.raises(InvalidArgument, match=r"Team core: no such file: caf\\udce9"):
                await each.write(team.new("core"))
