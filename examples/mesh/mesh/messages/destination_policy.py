"""The messages of the policies for connections to a service."""

from __future__ import annotations

import datetime
from enum import IntEnum

import headway
from headway import message

_PACKAGE = "hashicorp.consul.mesh.v2beta1"


class LoadBalancerPolicy(IntEnum):
    """The way in which an endpoint is chosen."""

    LOAD_BALANCER_POLICY_UNSPECIFIED = 0
    LOAD_BALANCER_POLICY_RANDOM = 1
    LOAD_BALANCER_POLICY_ROUND_ROBIN = 2
    LOAD_BALANCER_POLICY_LEAST_REQUEST = 3
    LOAD_BALANCER_POLICY_MAGLEV = 4
    LOAD_BALANCER_POLICY_RING_HASH = 5


class HashPolicyField(IntEnum):
    """The part of a request that is hashed."""

    HASH_POLICY_FIELD_UNSPECIFIED = 0
    HASH_POLICY_FIELD_HEADER = 1
    HASH_POLICY_FIELD_COOKIE = 2
    HASH_POLICY_FIELD_QUERY_PARAMETER = 3


class LocalityPrioritizationMode(IntEnum):
    """The use of the localities of endpoints."""

    LOCALITY_PRIORITIZATION_MODE_UNSPECIFIED = 0
    LOCALITY_PRIORITIZATION_MODE_NONE = 1
    LOCALITY_PRIORITIZATION_MODE_FAILOVER = 2


@message(name=f"{_PACKAGE}.CookieConfig")
class CookieConfig:
    """The cookie that a hash policy makes."""

    session: bool = headway.field(1)
    ttl: datetime.timedelta | None = headway.field(2)
    path: str = headway.field(3)


@message(name=f"{_PACKAGE}.HashPolicy")
class HashPolicy:
    """The part of a request that chooses its endpoint. Validation refuses it."""

    field: HashPolicyField = headway.field(1)
    field_value: str = headway.field(2)
    cookie_config: CookieConfig | None = headway.field(3)
    source_ip: bool = headway.field(4)
    terminal: bool = headway.field(5)


@message(name=f"{_PACKAGE}.RingHashConfig")
class RingHashConfig:
    """The sizes of a hash ring."""

    minimum_ring_size: int = headway.field(1, kind="uint64")
    maximum_ring_size: int = headway.field(2, kind="uint64")


@message(name=f"{_PACKAGE}.LeastRequestConfig")
class LeastRequestConfig:
    """The number of endpoints that are compared."""

    choice_count: int = headway.field(1, kind="uint32")


@message(name=f"{_PACKAGE}.LoadBalancer")
class LoadBalancer:
    """The choice of an endpoint."""

    policy: LoadBalancerPolicy = headway.field(1)
    hash_policies: list[HashPolicy] = headway.field(2)
    ring_hash_config: RingHashConfig | None = headway.field(3, oneof="config")
    least_request_config: LeastRequestConfig | None = headway.field(4, oneof="config")


@message(name=f"{_PACKAGE}.LocalityPrioritization")
class LocalityPrioritization:
    """The preference of near endpoints."""

    mode: LocalityPrioritizationMode = headway.field(1)


@message(name=f"{_PACKAGE}.DestinationConfig")
class DestinationConfig:
    """The connections to one port of a service."""

    connect_timeout: datetime.timedelta | None = headway.field(1)
    request_timeout: datetime.timedelta | None = headway.field(2)
    load_balancer: LoadBalancer | None = headway.field(3)
    locality_prioritization: LocalityPrioritization | None = headway.field(4)


@message(name=f"{_PACKAGE}.DestinationPolicy")
class DestinationPolicy:
    """The connections to the service of the same name, by port."""

    port_configs: dict[str, DestinationConfig] = headway.field(1)
