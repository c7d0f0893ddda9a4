"""Peering as an extension of an engine, and its seam to the network: a test may put links of its own there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from headway._gen.headway.peering.v1 import Peering
from headway.api import Handler
from headway.builtin import NAME
from headway.controller import App
from headway.engine import Extension, Host
from headway.peering._host import PeeringHost
from headway.peering._lifecycle import add_peerings
from headway.peering._service import PeeringService
from headway.peering._write_rules import PeeringRules
from headway.peering.links import PeerStreamService, add_peer_streams
from headway.service import Permissions


def peering_app(host: PeeringHost) -> App:
    """Return an app with the controllers of peerings."""
    app = App(NAME)
    add_peerings(app, host)
    add_peer_streams(app, host)
    return app


def peering_extension(host: Host, links: PeerLinks | None = None) -> Extension:
    """Return the extension of an engine that peers with others. A test may give links in place of the network."""
    peerings = PeeringHost(host)
    streams = PeerStreamService(peerings)
    host.ending.callback(peerings.streams.resign)
    if links is not None:
        host.addresses = links.serve({**PeeringService(peerings).__mapping__(), **streams.__mapping__()})
        peerings.open_channel = links.open_channel

    def service(_: Host, permissions: Permissions | None) -> PeeringService:
        return PeeringService(peerings, permissions)

    async def report_rest(_: Host) -> None:
        await peerings.report.report_rest()

    return Extension(
        late_apps=[peering_app(peerings)],
        rules=[PeeringRules()],
        services=[service],
        # A stream brings the secret of its peering instead of a token.
        open_services=[lambda _: streams],
        tasks=[report_rest] if host.network.listen else (),
    )


class PeerLinks(Protocol):
    """The links of one engine to other engines, in place of gRPC connections."""

    def serve(self, handlers: Mapping[str, Handler]) -> Sequence[str]:
        """Let other engines call these handlers, by path. Return the addresses for reaching them."""
        ...

    def open_channel(self, peering: Peering, **_: object) -> AbstractAsyncContextManager[Any]:
        """Open a channel to the accepting side of a peering, with the methods ``unary`` and ``duplex``."""
        ...
