"""The seam between a peering and the network: a test may put links of its own there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from headway._gen.headway.peering.v1 import Peering
from headway.api import Handler


class PeerLinks(Protocol):
    """The links of one engine to other engines, in place of gRPC connections."""

    def serve(self, handlers: Mapping[str, Handler]) -> Sequence[str]:
        """Let other engines call these handlers, by path. Return the addresses for reaching them."""
        ...

    def open_channel(self, peering: Peering, **_: object) -> AbstractAsyncContextManager[Any]:
        """Open a channel to the accepting side of a peering, with the methods ``unary`` and ``duplex``."""
        ...
