"""The messages of failover policies."""

from __future__ import annotations

from enum import IntEnum

import headway
from headway import field, message

_PACKAGE = "hashicorp.consul.catalog.v2beta1"


class FailoverMode(IntEnum):
    """The order of trying destinations."""

    FAILOVER_MODE_UNSPECIFIED = 0
    FAILOVER_MODE_SEQUENTIAL = 1
    FAILOVER_MODE_ORDER_BY_LOCALITY = 2


@message(name=f"{_PACKAGE}.FailoverDestination")
class FailoverDestination:
    """A service that stands in for another, and its port."""

    ref: headway.Reference | None = field(1)
    port: str = field(2)
    datacenter: str = field(3)


@message(name=f"{_PACKAGE}.FailoverConfig")
class FailoverConfig:
    """The destinations that stand in for a service or for one of its ports."""

    destinations: list[FailoverDestination] = field(1)
    mode: FailoverMode = field(2)
    regions: list[str] = field(3)
    sameness_group: str = field(4)


@message(name=f"{_PACKAGE}.FailoverPolicy")
class FailoverPolicy:
    """The failover of the service of the same name: for all ports, and for single ones."""

    config: FailoverConfig | None = field(1)
    port_configs: dict[str, FailoverConfig] = field(2)


@message(name=f"{_PACKAGE}.ComputedFailoverPolicy")
class ComputedFailoverPolicy:
    """A failover policy with a configuration for each port, and the services that it refers to."""

    config: FailoverConfig | None = field(1)
    port_configs: dict[str, FailoverConfig] = field(2)
    bound_references: list[headway.Reference] = field(3)
