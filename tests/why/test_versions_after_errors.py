"""After every failed reconcile, the next ones are recorded with the versions that they read."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

import headway
from headway import field
from headway.cache import READING, VersionedReads, _reading
from tests.helpers.why_programs import Team, part


@headway.message(name="why.Safe")
class Safe:
    lead: str = field(1)
    code: str = field(2, secret=True)


async def _sleep_and_raise() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("raised beside the cancellation")


async def _fail(how: str) -> object:
    if how == "raises":
        raise ValueError("no")
    if how == "times out":
        await trio.sleep_forever()
    elif how == "swallows the timeout":
        with pytest.raises(trio.Cancelled):
            await trio.sleep_forever()
    elif how == "raises beside the cancellation":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sleep_and_raise)
            nursery.start_soon(trio.sleep_forever)
    elif how == "turns the cancellation into an error":
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ValueError("the backend did not answer") from None
    else:
        assert how == "returns nonsense"
        return 7
    return None


WAYS = {
    "raises": "ValueError: no",
    "times out": "ReconcileTimeout: ",
    "swallows the timeout": "ReconcileTimeout: ",
    "raises beside the cancellation": "ValueError: raised beside",
    "turns the cancellation into an error": "ValueError: the backend",
    "returns nonsense": "InvalidResult: ",
}


@pytest.mark.parametrize("payload", [Team, Safe])
@pytest.mark.parametrize("how", WAYS)
async def test_versions_are_recorded_after_an_error_of_any_kind(
    how: str, payload: type[Team | Safe], monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Also if the type has secrets, whose reads are noted elsewhere. While all succeeds, none are recorded."""
    assert autojump_clock.autojump_threshold == 0
    monkeypatch.setattr(_reading, "VERSIONED", 3)
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", payload)
    fails, versioned = [False], list[bool]()

    @app.controller(manages=team, deadline=2.0)
    async def teams(rt: headway.Runtime, request: headway.Request) -> Any:
        rt.resource(request)
        reads = READING.get()
        versioned.append(isinstance(getattr(reads, "into", reads), VersionedReads))
        if fails[0]:
            fails[0] = False
            return await _fail(how)
        return None

    async with headway.open_engine("memory:", app, report=headway.events.ignore) as engine:

        async def reconciled(lead: str) -> int:
            core = await engine.client.apply(team.new("core", payload(lead=lead)))
            await engine.wait_idle()
            return int(core.version)

        for number in range(5):
            await reconciled(str(number))
        assert versioned == [True, True, True, False, False]
        fails[0] = True
        version = await reconciled("ada")
        again, failed = part(await engine.why(team.id("core"))).reconciles[:2]
        assert failed.error.startswith(WAYS[how])
        assert [(each.outcome, each.reads[0].revision) for each in (again, failed)] == [
            ("done", version),
            ("failed", 0),
        ]
        version = await reconciled("grace")
        assert part(await engine.why(team.id("core"))).reconciles[0].reads[0].revision == version
        await reconciled("barbara")
        assert versioned[5:] == [False, True, True, False]
