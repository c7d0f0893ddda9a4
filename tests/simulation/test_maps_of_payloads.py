"""The order of the entries of a map in a payload, which makes no difference."""

from __future__ import annotations

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Label:
    values: dict[str, str] = field(1)


@headway.message
class Site:
    labels: dict[str, str] = field(1)
    label: Label | None = field(2)
    all: list[Label] = field(3)
    by_name: dict[str, Label] = field(4)


@headway.message
class Wish:
    want: str = field(1)


def program(*, complete: bool) -> headway.App:
    """Return an app that adds each wish that it sees to the labels, and the first one in any case if ``complete``."""
    app = headway.App("sites")
    wish = app.type("sites", "v1", "Wish", Wish)
    site = app.type("sites", "v1", "Site", Site)

    @app.controller(manages=wish, watches=[headway.watch(site, headway.mappers.owner())])
    async def sites(rt: headway.Runtime, request: headway.Request[Wish]) -> None:
        found = rt.resource(request)
        if found is None:
            return
        old = rt.cache.get(site, "a")
        labels = {} if old is None else dict(old.data.labels)
        for name in (found.data.want, *(["x"] if complete else [])):
            labels.setdefault(name, "1")
        async with rt.outputs(site, owner=found) as wanted:
            await wanted.apply("a", Site(labels=labels, label=Label(values=labels)))

    return app


async def two_wishes(world: simulation.World) -> None:
    for want in ("x", "y"):
        await world.client.apply(world.type("Wish").new("a", Wish(want=want)))
    await world.wait_idle()


def test_order_in_which_a_controller_has_added_to_a_map_makes_no_difference() -> None:
    assert simulation.explore(program(complete=True), two_wishes, plan="spaced(2.0)").complete
