"""The order that the guide recommends for calls outside, and the weaker ones that it warns of."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Disk:
    """A disk."""

    login: str = field(1)


class Disks:
    """Disks by name. A call below the highest order of its name is ignored."""

    def __init__(self) -> None:
        self.disks: dict[str, str] = {}
        self.orders: dict[str, tuple[int, int]] = {}

    def state(self) -> object:
        return dict(self.disks)

    async def put(self, name: str, login: str, term: int = 0, version: int = 0) -> None:
        if (term, version) >= self.orders.get(name, (0, 0)):
            self.orders[name] = (term, version)
            self.disks[name] = login


def program(order: str) -> simulation.MakeApp:
    """Return a program that sends nothing, the term, or the term and the version."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("disks")
        disk = app.type("disks", "v1", "Disk", Disk)
        cloud: Disks = process.outside

        @app.controller(manages=disk)
        async def disks(rt: headway.Runtime, request: headway.Request[Disk]) -> None:
            found = rt.resource(request)
            if found is None:
                return
            if order == "nothing":
                await cloud.put(found.name, found.data.login)
            elif order == "term":
                await cloud.put(found.name, found.data.login, rt.term)
            else:
                await cloud.put(found.name, found.data.login, rt.term, int(found.version))

        return app

    return make


async def new_owners(world: simulation.World) -> None:
    for login in ("ada", "grace", "ada", "joan"):
        await world.client.apply(world.type("Disk").new("a", Disk(login=login)))
        await world.wait_idle()


LATE = "commit_last(1)"


@pytest.mark.wide
@pytest.mark.parametrize("order", ["nothing", "term"])
def test_late_call_of_the_same_term_is_found(order: str) -> None:
    """It has the term of the later calls, so the term alone does not reject it."""
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(program(order), new_owners, outside=Disks, plan=LATE)
    found = "again: the outside world was {'a': 'ada'}; after a restart it is {'a': 'joan'}"
    assert [str(each) for each in caught.value.findings] == [found]
