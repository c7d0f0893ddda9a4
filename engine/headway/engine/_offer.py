"""The parts of an engine that its clients on the network use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.controller import App
from headway.engine._options import Network
from headway.engine._services import EngineServices
from headway.engine._store_health import StoreHealth
from headway.engine._tracing import Untraced
from headway.events import Report
from headway.resource import Registry
from headway.storage import Backend
from headway.subscription import Topic


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The network of an engine, and the parts that its clients use."""

    network: Network
    apps: Sequence[App]
    registry: Registry
    topics: Mapping[str, Topic[Any]]
    backend: Backend
    services: EngineServices
    health: StoreHealth
    report: Report
    tracing: Untraced
