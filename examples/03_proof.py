"""Certificates of an authority outside, got in a way that is refuted, and in one that is proved.

Run it with `python examples/03_proof.py`.
"""

from typing import Any

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Certificate:
    """What a host needs."""

    host: str = field(1)


class Authority:
    """Stands for one that is asked over a network. What is asked with the same key is issued once."""

    def __init__(self) -> None:
        self.valid: dict[str, str] = {}
        self.revoked: set[str] = set()

    def state(self) -> object:
        """What must come to the same, whatever goes wrong: who has a certificate in the end."""
        return sorted(self.valid.values())

    async def find(self, host: str) -> str | None:
        """The key of a host's valid certificate."""
        return next((key for key, issued in self.valid.items() if issued == host), None)

    async def issue(self, host: str, key: str = "") -> str:
        """Issue a certificate, under a new key unless given, and never with a key that has been revoked."""
        key = key or f"key-{len(self.valid) + len(self.revoked) + 1}"
        if key not in self.revoked:
            self.valid[key] = host
        return key

    async def revoke(self, key: str) -> None:
        """Never again a certificate with this key."""
        self.revoked.add(key)
        self.valid.pop(key, None)


async def looks_first(authority: Any, certificate: headway.Resource[Certificate]) -> str:
    """Issue one where there is none. But one may be on its way, of a call that nobody waits for any more."""
    found: str | None = await authority.find(certificate.data.host)
    return found or str(await authority.issue(certificate.data.host))


async def says_which(authority: Any, certificate: headway.Resource[Certificate]) -> str:
    """Issue the one that belongs to this incarnation of the resource, however often it is asked for."""
    return str(await authority.issue(certificate.data.host, key=certificate.uid))


def program(obtain: Any) -> simulation.MakeApp:
    """The same controller, with one way or the other."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("pki")
        certificate = app.type("pki", "v1", "Certificate", Certificate)

        @app.controller(manages=certificate)
        async def certificates(rt: headway.Runtime, request: headway.Request[Certificate]) -> None:
            found = rt.resource(request)
            if found is None:
                return
            async with rt.finalizer(found) as guarded:
                if guarded.alive and "key" not in guarded.resource.metadata:
                    key = await obtain(process.outside, guarded.resource)
                    guarded.resource.metadata["key"] = key
                    await rt.client.write(guarded.resource)
                elif guarded.cleaning_up:
                    await process.outside.revoke(found.metadata.get("key", found.uid))

        return app

    return make


async def scenario(world: simulation.World) -> None:
    """A certificate is wanted, and then it isn't."""
    certificate = world.type("Certificate")
    await world.client.apply(certificate.new("web", Certificate(host="web.example")))
    await world.wait_idle()
    await world.client.delete(certificate.id("web"))
    await world.wait_idle()


def main() -> None:
    """Look at both."""
    for obtain in (looks_first, says_which):
        try:
            explored = simulation.explore(program(obtain), scenario, outside=Authority)
        except simulation.Refuted as refuted:
            print(f"{obtain.__name__} is refuted by {refuted.plan}: {refuted.findings[0]}")
        else:
            print(f"{obtain.__name__}: {explored}")


if __name__ == "__main__":
    main()
