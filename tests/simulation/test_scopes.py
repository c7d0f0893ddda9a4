"""Programs of scopes: a correct one passes every plan, and one that ignores resources that leave fails.

A controller gives each golden account a badge, and takes it away when the account leaves the scope or is deleted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Account:
    team: str = field(1)


@headway.message
class Badge:
    color: str = field(1)


def badges(*, forgets: bool = False, whole: bool = False) -> Callable[[simulation.Process], headway.App]:
    """Return the program.

    Args:
        forgets: the program keeps the badges of accounts that leave the scope.
        whole: the program has the whole type, and looks at the tier by itself.
    """

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("staff")
        account, badge = app.type("staff", "v1", "Account", Account), app.type("staff", "v1", "Badge", Badge)
        manages = account if whole else account.within(metadata="tier=gold")

        @app.controller(manages=manages, watches=[headway.watch(badge, lambda each, _: [account.id(each.name)])])
        async def pin(rt: headway.Runtime, request: headway.Request[Account]) -> None:
            found = rt.resource(request)
            held = rt.cache.get(badge, request.id.name)
            golden = found is not None and found.metadata.get("tier") == "gold"
            if golden:
                await rt.apply(badge.new(request.id.name, Badge(color="gold")))
            elif held is not None and not (forgets and await rt.strong.get(account, request.id) is not None):
                await rt.client.delete(held, version=held.version)

        return app

    return make


async def tiers_change(world: simulation.World) -> None:
    account = world.type("Account")
    for name, tier in (("ada", "gold"), ("bob", "free"), ("eve", "gold")):
        await world.client.apply(account.new(name, Account(team="core"), metadata={"tier": tier}))
    await world.wait_idle()
    for name, tier in (("ada", "free"), ("bob", "gold")):
        await world.client.apply(account.new(name, Account(team="core"), metadata={"tier": tier}))
    await world.client.delete(account.id("eve"))
    await world.wait_idle()


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_program_of_a_scope_is_right_under_every_plan() -> None:
    tried = simulation.explore(badges(), tiers_change, seconds=200)
    assert tried.runs


def test_program_of_a_scope_ends_like_one_of_the_whole_type() -> None:
    ends = [
        simulation.run(
            simulation.Setting(app=badges(whole=whole), scenario=tiers_change, quiet=60.0), simulation.Plan()
        )
        for whole in (False, True)
    ]
    assert [each.findings for each in ends] == [(), ()]
    assert ends[0].end == ends[1].end
    assert sum("Badge" in str(place) for place in ends[0].end) == 1


def test_program_that_keeps_what_has_left_its_scope_is_refuted() -> None:
    """Without faults it ends otherwise than the invariant says."""
    setting = simulation.Setting(app=badges(forgets=True), scenario=tiers_change, quiet=60.0)
    result = simulation.run(setting, simulation.Plan())
    badged = sorted(place[1][2] for place in result.end if place[0][1] == "Badge")
    assert badged == ["ada", "bob"]


def reader(_: simulation.Process) -> headway.App:
    """Return a program that writes badges into a scope and out of it, and reads each from its cache at once."""
    app = headway.App("staff")
    account, badge = app.type("staff", "v1", "Account", Account), app.type("staff", "v1", "Badge", Badge)
    shown = badge.within(metadata="shown=yes")

    @app.controller(manages=account, watches=[headway.watch(shown, lambda each, _: [account.id(each.name)])])
    async def pin(rt: headway.Runtime, request: headway.Request[Account]) -> None:
        found = rt.resource(request)
        if found is not None:
            state = "yes" if found.metadata["tier"] == "gold" else "no"
            await rt.client.apply(badge.new(request.id.name, Badge(color="gold"), metadata={"shown": state}))
            rt.cache.get(shown, request.id.name)

    return app


def test_program_that_reads_its_writes_in_a_scope_is_right() -> None:
    """The oracle of reads knows which states the scope has. A badge that leaves it may be absent, and no other."""
    result = simulation.run(simulation.Setting(app=reader, scenario=tiers_change, quiet=60.0), simulation.Plan())
    assert result.findings == ()
    seen = [each for call in result.trace.reconciles for each in call.seen if each.kind[1] == "Badge"]
    assert {each.within.selector for each in seen if each.how == "read"} == {"shown=yes"}
    assert any(not each.version for each in seen)
    assert any(each.version for each in seen if each.how == "read")
