"""Hooks that look synchronous but return before they have run. Their write is refused, and never stored unchecked."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest

import headway
from headway import events
from tests.helpers.resources import Team


async def _waits(_: object) -> None:
    """A check that is never awaited."""


def _yields(_: object) -> Any:
    yield 1


HIDDEN: list[tuple[headway.Hooks[Any], str]] = [
    (headway.Hooks(validate=lambda team: _waits(team)), "nothing awaits"),  # type: ignore[arg-type]
    (headway.Hooks(mutate=lambda team: _waits(team)), "nothing awaits"),  # type: ignore[arg-type]
    (headway.Hooks(mutate=lambda team: _yields(team)), "nothing iterates"),
    (headway.Hooks(validate=lambda team: team.name == "core"), "raising ValueError"),  # type: ignore[arg-type]
    (headway.Hooks(validate=lambda _: "no such team"), "raising ValueError"),  # type: ignore[arg-type]
    (headway.Hooks(validate=lambda _: ValueError("no such team")), "raising ValueError"),  # type: ignore[arg-type]
    (headway.Hooks(mutate=lambda _: Team()), "changes the resource in place"),  # type: ignore[arg-type]
    (headway.Hooks(mutate=copy.deepcopy), "changes the resource in place"),  # type: ignore[arg-type]
    (headway.Hooks(mutate=lambda team: team), "changes the resource in place"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("hooks", "says"), HIDDEN)
async def test_hook_that_has_checked_nothing_fails_the_write(hooks: headway.Hooks[Any], says: str) -> None:
    """The return value shows that the hook has not run. The operator gets the reason, and nothing is stored."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team, hooks=hooks)
    heard: list[object] = []
    async with headway.open_engine("memory:", app, report=heard.append) as engine:
        # Only the operator gets the text of the error.
        with pytest.raises(headway.HeadwayError, match=r"the (mutate|validate) hook of"):
            await engine.client.write(team.new("ops"))
        assert await engine.client.list(team) == []
    (failed,) = [event for event in heard if isinstance(event, events.HandlerFailed)]
    assert says in str(failed.error)
    assert " hook " in str(failed.error)
    assert " of staff.v1.Team: " in str(failed.error)
    if hooks.mutate is not copy.deepcopy:
        assert f"<lambda> ({__file__}, line " in str(failed.error)


async def test_refusal_without_a_message_names_its_class_and_its_line() -> None:
    """The caller would read only the name of the resource, as if that were wrong."""

    def refuse(_: headway.Resource[Team]) -> None:
        raise ValueError

    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team, hooks=headway.Hooks(validate=refuse))
    line = f"{os.path.basename(__file__)}:{refuse.__code__.co_firstlineno + 1}"
    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        with pytest.raises(headway.errors.InvalidArgument) as caught:
            await engine.client.write(team.new("ops"))
    assert str(caught.value) == f"Team ops: ValueError was raised without a message at {line}"


IN_PLACE: list[headway.Hooks[Any]] = [
    headway.Hooks(mutate=lambda team: team.metadata.setdefault("tier", "free")),  # type: ignore[arg-type]
    headway.Hooks(mutate=lambda team: [team.metadata.update(tier="free")]),  # type: ignore[arg-type]
    headway.Hooks(mutate=lambda team: team.metadata.update(tier="free"), validate=lambda team: team.name == "core"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("hooks", IN_PLACE)
async def test_result_of_a_hook_that_means_nothing_is_ignored(hooks: headway.Hooks[Any]) -> None:
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team, hooks=hooks)
    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        assert (await engine.client.write(team.new("core"))).metadata == {"tier": "free"}
