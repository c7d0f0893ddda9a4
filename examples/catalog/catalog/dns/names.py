"""The meaning of the names below the domain. No I/O, and no reads of the catalog.

    NAME.service[.NAMESPACE.ns][.PARTITION.ap]           a service
    NAME.workload[.NAMESPACE.ns][.PARTITION.ap]          a workload
    PORT.NAME.service…, _PORT._tcp.NAME.service…         one port of it
    HEX.addr                                             an address, which SRV answers point to
    ns                                                   the name server

A name that only has other names below it, such as ``service``, exists and has no records (RFC 8020).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from headway.resource import name_problem

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

SERVICE, WORKLOAD, ADDRESS = "service", "workload", "addr"
DEFAULT = "default"
SERVER_LABELS = ["ns"]
"""The labels of the name server, which SOA and NS records point to."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?", re.ASCII)
# An octet in decimal digits without leading zeros, and a hexadecimal digit.
_OCTET = re.compile(r"25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9]", re.ASCII)
_DIGIT = re.compile(r"[0-9a-f]", re.ASCII)
_REVERSE = {("in-addr", "arpa"): 4, ("ip6", "arpa"): 32}


class Node(Enum):
    """A name without records of the catalog."""

    APEX = "the domain itself"
    SERVER = "the name server"
    BETWEEN = "a name that only has names below it"


class Target(NamedTuple):
    """A service or a workload, or one port of it.

    Attributes:
        kind: `SERVICE` or `WORKLOAD`.
        port: the name of the port in lower case; empty for all ports.
        between: True for ``_tcp.NAME…``, which has no records.
    """

    kind: str
    partition: str
    namespace: str
    name: str
    port: str = ""
    between: bool = False


Meaning = Node | Target | IPAddress


def parse(labels: Sequence[str]) -> Meaning | None:
    """Return the meaning of the labels in front of the domain, in lower case, or None if the name cannot exist."""
    if not all(map(_LABEL.fullmatch, labels)):
        return None
    rest = list(labels)
    if not rest:
        return Node.APEX
    if rest == SERVER_LABELS:
        return Node.SERVER
    if rest[-1] == ADDRESS:
        return _address(rest[:-1])
    partition, namespace = _unit(rest, "ap"), _unit(rest, "ns")
    # The cache refuses to look for what no resource can be called.
    if any(unit and name_problem("", unit) for unit in (partition, namespace)):
        return None
    if not (partition and namespace and rest):
        return Node.BETWEEN
    kind = rest.pop()
    if kind not in (SERVICE, WORKLOAD):
        return None
    if not rest:
        return Node.BETWEEN
    name = rest.pop()
    if name_problem("", name):
        return None
    match rest:
        case []:
            return Target(kind, partition, namespace, name)
        case ["_tcp"]:
            return Target(kind, partition, namespace, name, between=True)
        case [port] if not port.startswith("_"):
            return Target(kind, partition, namespace, name, port)
        case [port, "_tcp"] if port.startswith("_") and port != "_":
            return Target(kind, partition, namespace, name, port[1:])
    return None


def _unit(rest: list[str], mark: str) -> str:
    """Take a unit of tenancy from the end. Return its name, or an empty text if the mark has no name in front of it."""
    if rest[-1:] != [mark]:
        return DEFAULT
    rest.pop()
    return rest.pop() if rest else ""


def _address(rest: Sequence[str]) -> Meaning | None:
    if not rest:
        return Node.BETWEEN
    try:
        packed = bytes.fromhex(rest[0]) if len(rest) == 1 and len(rest[0]) in (8, 32) else b""
        return ipaddress.ip_address(packed) if packed else None
    except ValueError:
        return None


def address_labels(address: IPAddress) -> list[str]:
    """Return the labels of the name of an address."""
    return [address.packed.hex(), ADDRESS]


def target_labels(target: Target) -> list[str]:
    """Return the labels of the full name of a service or workload."""
    return [target.name, target.kind, target.namespace, "ns", target.partition, "ap"]


def parse_reverse(labels: Sequence[str]) -> IPAddress | Node | None:
    """Return the address of a reverse name. ``4.3.2.1.in-addr.arpa`` is 1.2.3.4.

    Return `Node.BETWEEN` for a name that has only reverse names below it, and None for any other name.
    """
    size = _REVERSE.get((labels[-2], labels[-1])) if len(labels) >= 2 else None
    if size is None:
        return None
    parts = list(reversed(labels[:-2]))
    form = _OCTET if size == 4 else _DIGIT
    if len(parts) > size or not all(map(form.fullmatch, parts)):
        return None
    if len(parts) < size:
        return Node.BETWEEN
    if size == 4:
        return ipaddress.IPv4Address(bytes(map(int, parts)))
    return ipaddress.IPv6Address(int("".join(parts), 16))


def is_reverse(labels: Sequence[str]) -> bool:
    """Return True for the names below ``in-addr.arpa`` and ``ip6.arpa``."""
    return tuple(labels[-2:]) in _REVERSE
