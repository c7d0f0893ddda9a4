"""The parts of an engine that its clients on the network use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.controller import App
from headway.engine._extension import Host
from headway.engine._services import EngineServices
from headway.engine._store_health import StoreHealth
from headway.engine._tracing import Untraced
from headway.subscription import Topic


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The host of an engine, and the parts that its clients use."""

    host: Host
    apps: Sequence[App]
    topics: Mapping[str, Topic[Any]]
    services: EngineServices
    health: StoreHealth
    tracing: Untraced
