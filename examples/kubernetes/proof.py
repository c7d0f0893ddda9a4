"""A proof of the operator: whatever fails, the objects and the records end up the same.

Run it with `python -m examples.kubernetes.proof`, or with pytest. Both scenarios take some minutes.
"""

from typing import Any

import headway
from examples.kubernetes.dns import Order, Records
from examples.kubernetes.websites import WEBSITE, Spec, Website, operator
from headway.testing import simulation


class Provider(Records):
    """The provider of DNS. Its calls may fail, get lost, or arrive much later. An order is optional, as in its API."""

    def state(self) -> object:
        """Return the records, which must end up the same."""
        return dict(sorted(self.hosts.items()))

    async def put(self, key: str, order: Order | None = None, host: str = "") -> None:
        """Let the record of this key be for this host."""
        self.change(key, order, host)

    async def remove(self, key: str, order: Order | None = None) -> None:
        """Let there be no record of this key."""
        self.change(key, order, "")


def make(process: simulation.Process) -> headway.App:
    """Return the operator of one process."""
    return operator(process.outside)


def site(**given: Any) -> headway.Resource[Website]:
    """Return a Website."""
    return WEBSITE.new("blog", Website(spec=Spec(image="web:1", replicas=2, **given)))


@simulation.explored(make, outside=Provider, processes=2, seconds=400)
async def test_edits(world: simulation.World) -> None:
    """A site gets other pages, and loses its host, with its Ingress and its record."""
    await world.client.apply(site(host="blog.example", pages={"index.html": "Welcome"}))
    await world.wait_idle()
    await world.client.apply(site(pages={"index.html": "Good bye"}))
    await world.wait_idle()


@simulation.explored(make, outside=Provider, processes=2, seconds=400)
async def test_a_deletion(world: simulation.World) -> None:
    """A site is deleted, and made again under the same name."""
    await world.client.apply(site(host="old.example"))
    await world.wait_idle()
    await world.client.delete(WEBSITE.id("blog"))
    await headway.until_gone(world.client, WEBSITE, "blog")
    await world.client.apply(site(host="new.example"))
    await world.wait_idle()


if __name__ == "__main__":
    test_edits()
    test_a_deletion()
