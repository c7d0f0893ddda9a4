"""The owners of a resource on the page, what it owns, and its events."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway.resource import pb
from tests.helpers.plain_types import Note
from tests.page.kit import EVERYTHING, open_shop


async def test_owned_resources_are_told_from_events_without_comparing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at once. Comparing each with every event held the loop for seconds."""
    app = headway.App("staff")
    team, event = app.type("staff", "v1", "Team", Note), app.type("staff", "v1", "Event", Note)

    def refuse(*_: object) -> bool:
        raise AssertionError("messages are compared")

    async with open_shop(app=app, rules={"all": [EVERYTHING]}) as shop:
        core = await shop.client.write(team.new("core"))
        for number in range(3):
            await shop.client.write(team.new(f"team-{number}", owner=core))
            await shop.client.write(event.new(f"event-{number}", owner=core))
        async with shop.visitor("all") as visitor:
            monkeypatch.setattr(pb.Resource, "__eq__", refuse)
            answer: dict[str, Any] = (await visitor.http.get("/page/relatives?type=staff.v1.Team&name=core")).json()
    assert sorted(each["name"] for each in answer["owned"]) == ["team-0", "team-1", "team-2"]
    assert answer["ownedCount"] == 3
    assert sorted(each["name"] for each in answer["events"]) == ["event-0", "event-1", "event-2"]
