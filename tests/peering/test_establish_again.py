"""A second establishment of a peering that works: with a token that is refused, it leaves everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

import headway
from headway import events
from headway.errors import FailedPrecondition
from headway.peering import (
    EXCHANGED,
    PEERING,
    STATUS_KEY,
    PeeringState,
    SecretStore,
    condition_of,
    establish,
    export,
    generate_token,
)
from headway.resource import ConditionState
from headway.storage import MemoryBackend
from tests.helpers.peers import ROOM, TEAM, app, exchanged, open_accepting, reached


async def test_token_that_was_used_already_changes_nothing(tmp_path: Path) -> None:
    memory = MemoryBackend()
    async with open_accepting(tmp_path) as accepts, headway.open_engine(memory, app, report=events.ignore) as dials:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        before = await establish(dials.client, "east", token, [TEAM], plain_text=True)
        record = await SecretStore(memory).read(before.id.uid)
        assert record is not None
        # The first stream ends the token.
        await reached(dials, "east", PeeringState.ACTIVE)
        for _ in range(2):
            with pytest.raises(FailedPrecondition, match=r"peering east was not established: .* was exchanged already"):
                await establish(dials.client, "east", token, [export(ROOM)], plain_text=True)
            after = await exchanged(dials, "east")
            assert after.data.exports == before.data.exports
            assert after.data.addresses == before.data.addresses
            found = await SecretStore(memory).read(before.id.uid)
            assert found is not None
            assert (found.stream_secret, found.token_secret) == (record.stream_secret, "")


async def test_peering_keeps_its_exports_if_none_are_given(tmp_path: Path) -> None:
    async with open_accepting(tmp_path) as accepts, headway.open_engine("memory:", app, report=events.ignore) as dials:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        before = await establish(dials.client, "east", token, [TEAM], plain_text=True)
        token = await generate_token(accepts.client, "west", None, plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)
        after = await dials.client.read(PEERING, "east")
        assert after.data.exports == before.data.exports
        condition = condition_of(await exchanged(dials, "east"), STATUS_KEY, EXCHANGED)
        assert condition is not None
        assert condition.state is ConditionState.TRUE
