"""Programs that read by a view, a projection or the store itself: right ones pass, and wrong ones are refuted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headway
from headway import field
from headway.testing import simulation


@headway.message(name="reads.Team")
class Team:
    members: list[str] = field(1)
    note: str = field(2)


@headway.message(name="reads.Members")
class Members:
    names: list[str] = field(1)


@headway.message(name="reads.Card")
class Card:
    text: str = field(1)


Make = Callable[[simulation.Process], headway.App]


def of_a_projection(*, right: bool) -> Make:
    """Return a program that caches the members alone. Wrong if its cards contain more, read from the store."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("cards")
        team, card = app.type("cards", "v1", "Team", Team), app.type("cards", "v1", "Card", Card)
        names = headway.projection(team, Members, lambda each: Members(names=each.data.members))

        @app.controller(manages=names)
        async def cards(rt: headway.Runtime, request: headway.Request) -> None:
            found = rt.cache.get(names, request.id)
            if found is None:
                return
            text = " ".join(found.data.names)
            if not right:
                text += (await rt.strong.read(team, found.id)).data.note
            await rt.client.apply(card.new(request.id.name, Card(text=text), owner=found.id))

        return app

    return make


async def notes_change(world: simulation.World) -> None:
    for note in ("", "!"):
        await world.client.apply(world.type("Team").new("core", Team(members=["ada"], note=note)))
        await world.wait_idle()


@pytest.mark.parametrize("right", [True, False])
def test_projection_that_lacks_what_a_reconcile_uses_is_found_in_every_run(right: bool) -> None:
    found = simulation.run(
        simulation.Setting(app=of_a_projection(right=right), scenario=notes_change), simulation.Plan()
    )
    assert [each.oracle for each in found.findings] == ([] if right else ["again"])
