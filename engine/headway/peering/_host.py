"""The objects that all parts of peering share in one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any

from headway.base import BoundedReport
from headway.client import Client
from headway.engine import Host
from headway.peering._dial import open_peer_channel
from headway.peering._failures import Failures
from headway.peering._hub import PeerStreams
from headway.peering._secrets import SecretStore
from headway.peering.stream import Schemas
from headway.rpc import Channel


class PeeringHost:
    """The store, the types and the client of one engine, for its peerings.

    Attributes:
        secrets: the secrets in the store.
        schemas: the schemas of the types.
        listening: set once the engine listens at its addresses.
        streams: the streams of this process.
        loads: returns a block in which the first copy of a peering is received.
        open_channel: opens a channel to the accepting side of a peering. A simulation sets another function.
        encrypted: True if the engine listens with TLS.
        report: reports events at a bounded rate.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.backend = host.backend
        self.registry = host.registry
        self.secrets = SecretStore(host.backend)
        self.schemas = Schemas(host.registry)
        self.report = BoundedReport(host.report)
        self.failures = Failures()
        self.encrypted = host.network.tls is not None
        self.listening = host.listening
        self.streams = PeerStreams()
        self.loads = host.loading
        self.open_channel: Callable[..., AbstractAsyncContextManager[Any]] = open_peer_channel

    @cached_property
    def channel(self) -> Channel:
        """A channel that may write to partitions with copies."""
        return self._host.channel

    @cached_property
    def client(self) -> Client:
        """A client that may write to partitions with copies."""
        return Client(self.channel, self.registry)

    @property
    def addresses(self) -> Sequence[str]:
        """The engine's listening addresses, once it is ``listening``."""
        return self._host.addresses
