"""The resources that proxies get: encoded once, with a version, and the snapshot of all that one proxy should have."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any as Message
from weakref import WeakValueDictionary

from headway.protobuf import decode, encode
from mesh.xds import messages as m
from mesh.xds.generated.message_pool import default_message_pool

PREFIX = "type.googleapis.com/"
_HTTP = PREFIX + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


class Kind(enum.Enum):
    """A type of resource. The value is its type URL. The order is that in which new resources are sent."""

    SECRET = PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
    CLUSTER = PREFIX + "envoy.config.cluster.v3.Cluster"
    ENDPOINTS = PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
    LISTENER = PREFIX + "envoy.config.listener.v3.Listener"
    ROUTE = PREFIX + "envoy.config.route.v3.RouteConfiguration"


_KINDS: dict[type[Message], Kind] = {
    m.Secret: Kind.SECRET,
    m.Cluster: Kind.CLUSTER,
    m.ClusterLoadAssignment: Kind.ENDPOINTS,
    m.Listener: Kind.LISTENER,
    m.RouteConfiguration: Kind.ROUTE,
}
Need = tuple[Kind, str]


def packed(message: Message) -> m.Any:
    """Return a message as an Any. Equal messages give equal bytes."""
    return m.Any(type_url=default_message_pool.type_to_url[type(message)], value=encode(_in_order(message)))


class Resource:
    """One encoded resource. Equal ones are one object, whichever proxies have it.

    Attributes:
        kind: its type.
        name: its name, unique within its type.
        version: a hash of its content.
        needs: the resources without which a proxy cannot use it: endpoints of a cluster, routes of a listener, secrets.
        delta: the resource as an entry of a delta response, encoded.
        full: the resource as an entry of a state-of-the-world response, encoded.
    """

    __slots__ = ("__weakref__", "delta", "full", "kind", "name", "needs", "version")

    kind: Kind
    name: str
    version: str
    needs: frozenset[Need]
    delta: bytes
    full: bytes

    def __repr__(self) -> str:
        """Return the type, name and version. The content may hold a key."""
        return f"<Resource {self.kind.name} {self.name!r} {self.version}>"

    @staticmethod
    def of(message: Message) -> Resource:
        """Encode a Listener, RouteConfiguration, Cluster, ClusterLoadAssignment or Secret.

        Raises:
            ValueError: it is of another type, or has no name.
        """
        kind = _KINDS.get(type(message))
        if kind is None:
            known = ", ".join(each.__name__ for each in _KINDS)
            raise ValueError(f"not a resource of xDS: {type(message).__name__}: pass one of {known}")
        name = message.cluster_name if kind is Kind.ENDPOINTS else message.name
        if not name:
            field = "cluster_name" if kind is Kind.ENDPOINTS else "name"
            raise ValueError(f"{type(message).__name__}.{field} is empty: each resource needs a name")
        body = packed(message)
        digest = hashlib.sha256(kind.value.encode() + b"\0" + body.value).digest()
        found = _shared.get(digest)
        if found is None:
            found = _shared[digest] = Resource()
            found.kind, found.name, found.version = kind, name, digest[:12].hex()
            found.needs = frozenset(_needs(message))
            entry = m.Resource(name=name, version=found.version, resource=body)
            found.delta = encode(m.DeltaDiscoveryResponse(resources=[entry]))
            found.full = encode(m.DiscoveryResponse(resources=[body]))
        return found


_shared: WeakValueDictionary[bytes, Resource] = WeakValueDictionary()
# A message has dozens of parts, and a proxy dozens of messages.
_fields: dict[type[Message], tuple[str, ...]] = {}


class Snapshot:
    """All resources of one proxy at one time. It never changes."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        by_kind: dict[Kind, dict[str, Resource]] = {each: {} for each in Kind}
        for each in resources:
            found = by_kind[each.kind].setdefault(each.name, each)
            if found is not each:
                raise ValueError(f"two different resources {each.kind.name} have the name {each.name!r}: rename one")
        self._by_kind = MappingProxyType(by_kind)

    def __getitem__(self, kind: Kind) -> Mapping[str, Resource]:
        """Return the resources of a type by name."""
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[Resource]:
        """Iterate over all resources."""
        return (each for group in self._by_kind.values() for each in group.values())

    @cached_property
    def versions(self) -> Mapping[Kind, Mapping[str, str]]:
        """The versions by type and name."""
        return {kind: {name: each.version for name, each in group.items()} for kind, group in self._by_kind.items()}


def _in_order(value: Message) -> Message:
    """Sort the maps within a message, which are encoded in their order."""
    for name in _names(type(value)):
        held = getattr(value, name)
        if isinstance(held, dict):
            setattr(value, name, {key: _sorted(held[key]) for key in sorted(held)})
        elif isinstance(held, list):
            for item in held:
                _sorted(item)
        else:
            _sorted(held)
    return value


def _sorted(held: Message) -> Message:
    return _in_order(held) if _names(type(held)) else held


def _names(kind: type[Message]) -> tuple[str, ...]:
    """Return the names of the fields of a class of messages, or none for another class."""
    found = _fields.get(kind)
    if found is None:
        found = _fields[kind] = tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()
    return found


def _needs(message: Message) -> Iterator[Need]:
    if isinstance(message, m.Cluster):
        if message.eds_cluster_config is not None:
            yield Kind.ENDPOINTS, message.eds_cluster_config.service_name or message.name
        for socket in (message.transport_socket, *(each.transport_socket for each in message.transport_socket_matches)):
            if socket is not None:
                yield from _secrets(socket, m.UpstreamTlsContext)
    elif isinstance(message, m.Listener):
        filters = [each.typed_config for chain in message.filter_chains for each in chain.filters]
        if message.api_listener is not None:
            filters.append(message.api_listener.api_listener)
        for config in filters:
            if config is not None and config.type_url == _HTTP:
                rds = decode(m.HttpConnectionManager, config.value).rds
                if rds is not None:
                    yield Kind.ROUTE, rds.route_config_name
        for chain in message.filter_chains:
            if chain.transport_socket is not None:
                yield from _secrets(chain.transport_socket, m.DownstreamTlsContext)


def _secrets(socket: m.TransportSocket, context: type[Message]) -> Iterator[Need]:
    if socket.typed_config is None or socket.typed_config.type_url != default_message_pool.type_to_url[context]:
        return
    tls = decode(context, socket.typed_config.value).common_tls_context
    if tls is None:
        return
    named = list(tls.tls_certificate_sds_secret_configs)
    combined = tls.combined_validation_context
    if combined is not None and combined.validation_context_sds_secret_config is not None:
        named.append(combined.validation_context_sds_secret_config)
    yield from ((Kind.SECRET, each.name) for each in named)
