"""Certificates of an authority outside, got in two ways that are refuted, and in one that is proved.

Run it with `python examples/03_proof.py`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Certificate:
    """A certificate for a host."""

    host: str = field(1)


class Authority:
    """A stand-in for an authority that is called over a network."""

    def __init__(self) -> None:
        self.valid: dict[str, str] = {}
        self.revoked: set[str] = set()
        self.orders: dict[str, tuple[int, int]] = {}

    def state(self) -> object:
        """Return the hosts that have a certificate. This must end up the same, whatever goes wrong."""
        return sorted(self.valid.values())

    async def find(self, host: str) -> list[str]:
        """Return the keys of a host's valid certificates."""
        return [key for key, issued in self.valid.items() if issued == host]

    async def issue(self, host: str) -> None:
        """Issue one more certificate, under a new key."""
        self.valid[f"key-{len(self.valid) + len(self.revoked) + 1}"] = host

    async def issue_once(self, host: str, key: str) -> None:
        """Issue the certificate of this key, unless it was issued, or even revoked, before."""
        if key not in self.revoked:
            self.valid[key] = host

    async def revoke(self, key: str) -> None:
        """Revoke the certificate of this key for good."""
        self.revoked.add(key)
        self.valid.pop(key, None)

    async def issue_in_order(self, host: str, order: tuple[int, int]) -> None:
        """Let the host have a certificate, unless a request with a higher order has been here before."""
        if self._accepts(host, order):
            self.valid[host] = host

    async def revoke_in_order(self, host: str, order: tuple[int, int]) -> None:
        """Let the host have none, unless a request with a higher order has been here before."""
        if self._accepts(host, order):
            self.valid.pop(host, None)

    def _accepts(self, host: str, order: tuple[int, int]) -> bool:
        accepted = order >= self.orders.get(host, (0, 0))
        if accepted:
            self.orders[host] = order
        return accepted


async def looks_first(authority: Any, _: headway.Runtime, certificate: headway.Resource[Certificate]) -> None:
    """Issue one if there is none. But one may be on its way, by a call that timed out."""
    found = await authority.find(certificate.data.host)
    if certificate.is_deleting:
        for key in found:
            await authority.revoke(key)
    elif not found:
        await authority.issue(certificate.data.host)


async def by_uid(authority: Any, _: headway.Runtime, certificate: headway.Resource[Certificate]) -> None:
    """Issue the one of this incarnation, once. But a restored store may have an incarnation that was deleted before."""
    if certificate.is_deleting:
        await authority.revoke(certificate.uid)
    else:
        await authority.issue_once(certificate.data.host, certificate.uid)


async def in_order(authority: Any, rt: headway.Runtime, certificate: headway.Resource[Certificate]) -> None:
    """Send with each call what it was decided by: the term of the run, and then the version of the resource."""
    order = (rt.term, int(certificate.version))
    if certificate.is_deleting:
        await authority.revoke_in_order(certificate.data.host, order)
    else:
        await authority.issue_in_order(certificate.data.host, order)


Way = Callable[[Any, headway.Runtime, headway.Resource[Certificate]], Awaitable[None]]


def program(way: Way) -> simulation.MakeApp:
    """Return the same controller for each of these ways."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("pki")
        certificate = app.type("pki", "v1", "Certificate", Certificate)

        @app.controller(manages=certificate)
        async def certificates(rt: headway.Runtime, request: headway.Request[Certificate]) -> None:
            found = rt.resource(request)
            if found is None:
                return
            async with rt.finalizer(found) as guarded:
                if guarded.alive or guarded.cleaning_up:
                    await way(process.outside, rt, guarded.resource)

        return app

    return make


async def scenario(world: simulation.World) -> None:
    """Users want a certificate, delete it, and want it again."""
    certificate = world.type("Certificate")
    await world.client.apply(certificate.new("web", Certificate(host="web.example")))
    await world.wait_idle()
    await world.client.delete(certificate.id("web"))
    await world.wait_idle()
    await world.client.apply(certificate.new("web", Certificate(host="web.example")))
    await world.wait_idle()


def main() -> None:
    """Explore all three, for at most 20 seconds of CPU time each."""
    for way in (looks_first, by_uid, in_order):
        try:
            explored = simulation.explore(program(way), scenario, outside=Authority, processes=2, seconds=20)
        except simulation.Refuted as refuted:
            print(f"{way.__name__} is refuted by {refuted.plan}: {refuted.findings[0]}")
        else:
            print(f"{way.__name__}: {explored}")


if __name__ == "__main__":
    main()
