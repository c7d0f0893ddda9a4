"""The messages of services that are exported to peers and partitions."""

from __future__ import annotations

import headway
from headway import field, message

_PACKAGE = "hashicorp.consul.multicluster.v2"


@message(name=f"{_PACKAGE}.ExportedServicesConsumer")
class ExportedServicesConsumer:
    """A consumer of exported services. Exactly one field is set."""

    peer: str | None = field(1, oneof="consumer_tenancy")
    partition: str | None = field(2, oneof="consumer_tenancy")
    sameness_group: str | None = field(3, oneof="consumer_tenancy")


@message(name=f"{_PACKAGE}.ExportedServices")
class ExportedServices:
    """Services of a namespace, by name, that are exported."""

    services: list[str] = field(1)
    consumers: list[ExportedServicesConsumer] = field(2)


@message(name=f"{_PACKAGE}.NamespaceExportedServices")
class NamespaceExportedServices:
    """The export of every service of a namespace."""

    consumers: list[ExportedServicesConsumer] = field(1)


@message(name=f"{_PACKAGE}.PartitionExportedServices")
class PartitionExportedServices:
    """The export of every service of a partition."""

    consumers: list[ExportedServicesConsumer] = field(1)


@message(name=f"{_PACKAGE}.ComputedExportedServiceConsumer")
class ComputedExportedServiceConsumer:
    """A consumer of an exported service. Exactly one field is set."""

    peer: str | None = field(3, oneof="tenancy")
    partition: str | None = field(4, oneof="tenancy")


@message(name=f"{_PACKAGE}.ComputedExportedService")
class ComputedExportedService:
    """An exported service and its consumers."""

    target_ref: headway.Reference | None = field(1)
    consumers: list[ComputedExportedServiceConsumer] = field(2)


@message(name=f"{_PACKAGE}.ComputedExportedServices")
class ComputedExportedServices:
    """All exports of a partition."""

    services: list[ComputedExportedService] = field(1)


@message(name=f"{_PACKAGE}.SamenessGroupMember")
class SamenessGroupMember:
    """A member of a sameness group. Exactly one field is set."""

    peer: str | None = field(1, oneof="member")
    partition: str | None = field(2, oneof="member")


@message(name=f"{_PACKAGE}.SamenessGroup")
class SamenessGroup:
    """Peers and partitions with the same services. It has no type that a server serves."""

    default_for_failover: bool = field(1)
    members: list[SamenessGroupMember] = field(2)
