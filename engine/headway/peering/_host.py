"""The objects that all parts of peering share in one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any

import trio

from headway.base import BoundedReport
from headway.client import Client
from headway.events import Report
from headway.peering._dial import open_peer_channel
from headway.peering._failures import Failures
from headway.peering._hub import PeerStreams
from headway.peering._secrets import SecretStore
from headway.peering.stream import Schemas
from headway.resource import Registry
from headway.rpc import Channel
from headway.storage import Backend


class PeeringHost:
    """The store, the types and the client of one engine, for its peerings.

    Attributes:
        client: a client that may write to partitions with copies. The engine sets it.
        channel: the channel of this client. The engine sets it.
        secrets: the secrets in the store.
        schemas: the schemas of the types.
        addresses: the engine's listening addresses. The engine sets them, and then ``listening``.
        streams: the streams of this process.
        loads: returns a block in which the first copy of a peering is received. The engine sets it.
        open_channel: opens a channel to the accepting side of a peering. A simulation sets another function.
        encrypted: True if the engine listens with TLS.
        report: reports events at a bounded rate.
    """

    client: Client
    channel: Channel

    def __init__(self, backend: Backend, registry: Registry, report: Report) -> None:
        self.backend = backend
        self.registry = registry
        self.secrets = SecretStore(backend)
        self.schemas = Schemas(registry)
        self.report = BoundedReport(report)
        self.failures = Failures()
        self.addresses: Sequence[str] = ()
        self.encrypted = False
        self.listening = trio.Event()
        self.streams = PeerStreams()
        self.loads: Callable[[], AbstractContextManager[None]] = nullcontext
        self.open_channel: Callable[..., AbstractAsyncContextManager[Any]] = open_peer_channel
