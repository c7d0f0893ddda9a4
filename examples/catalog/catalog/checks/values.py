"""The rules for single values, such as addresses, names, ports and enums. Each function yields faults."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Final

from catalog.checks.faults import Faults
from headway.resource import quoted

LONGEST_SOCKET: Final = 108
LONGEST_NAME: Final = 256
HIGHEST_PORT: Final = 65535
_SOCKET: Final = "unix://"
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?\Z")
_PORT_NAME = re.compile(r"(?=[A-Za-z0-9-]{1,15}\Z)(?=.*[A-Za-z])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\Z")
_PORT_NUMBER = re.compile(r"\+?0*([0-9]{1,5})\Z", re.ASCII)


def ip_address(path: str, value: str) -> Faults:
    """An IPv4 or IPv6 address is required."""
    if not value:
        yield f"{path} is empty: give an IP address, such as '10.0.0.1' or 'fd00::1'"
    elif not _is_ip(value):
        yield f"{path} {quoted(value)} is not an IP address, such as '10.0.0.1' or 'fd00::1'"


def _is_ip(value: str) -> bool:
    try:
        # A zone, as in fe80::1%eth0, has a meaning on one machine only.
        return "%" not in value and bool(ipaddress.ip_address(value))
    except ValueError:
        return False


def dns_label(path: str, value: str) -> Faults:
    """A DNS label is required: the name of an identity, of a node, of a check."""
    if not _LABEL.match(value):
        yield (
            f"{path} {quoted(value)} is not a DNS label: use 1 to 63 lower-case letters, digits, hyphens and "
            "underscores, beginning and ending with a letter or digit, such as 'api-1'"
        )


def is_dns_name(value: str) -> bool:
    """Return True if a text is DNS labels with dots between them."""
    return len(value) <= LONGEST_NAME and all(map(_LABEL.match, value.split(".")))


def is_socket(value: str) -> bool:
    """Return True if a host is the path of a Unix socket."""
    return value.startswith(_SOCKET)


def workload_host(path: str, value: str) -> Faults:
    """An IP address, a DNS name or a Unix socket is required."""
    if is_socket(value):
        if len(value.encode()) > LONGEST_SOCKET or "\0" in value:
            yield (
                f"{path} {quoted(value)} is not a Unix socket: use at most {LONGEST_SOCKET} bytes without a NUL, "
                "such as 'unix:///run/api.sock'"
            )
    elif not is_dns_name(value) and not _is_ip(value):
        yield (
            f"{path} {quoted(value)} is not a host: use an IP address, a DNS name or a Unix socket, such as "
            "'10.0.0.1', 'api.example.com' or 'unix:///run/api.sock'"
        )


def node_host(path: str, value: str) -> Faults:
    """An IP address or a DNS name is required."""
    if not value:
        yield f"{path} is required, such as '10.0.0.1'"
    elif not is_dns_name(value) and not _is_ip(value):
        yield (
            f"{path} {quoted(value)} is not the host of a node: use an IP address or a DNS name, such as '10.0.0.1' "
            "or 'node-1.example.com'"
        )


def port_name(path: str, value: str) -> Faults:
    """The name of a port is required."""
    if not _PORT_NAME.match(value):
        yield (
            f"{path} {quoted(value)} is not the name of a port: use 1 to 15 letters, digits and single hyphens "
            "between them, with at least one letter, such as 'http' or 'grpc-2'"
        )


def port_id(path: str, value: str) -> Faults:
    """The name of a port, or the number of a virtual port, is required."""
    number = _PORT_NUMBER.match(value)
    if not _PORT_NAME.match(value) and not (number and 1 <= int(number[1]) <= HIGHEST_PORT):
        yield (
            f"{path} {quoted(value)} is not a port of a service: use the name of a target port or the number of a "
            "virtual port, such as 'http' or '8080'"
        )


def number(path: str, value: int, lowest: int, highest: int = HIGHEST_PORT) -> Faults:
    """A number from ``lowest`` to ``highest`` is required."""
    if not lowest <= value <= highest:
        yield f"{path} {value} must be from {lowest} to {highest}"


@cache
def _names(enum: type[IntEnum], lowest: int) -> Mapping[int, str]:
    """Return the names of an enum's numbers from ``lowest`` on. Each endpoint of a service has several enums."""
    return {int(each): each.name for each in enum if each >= lowest}


def member(path: str, value: IntEnum, lowest: int = 0) -> Faults:
    """A number that the enum has is required."""
    known = _names(type(value), lowest)
    if int(value) not in known:
        yield f"{path} {int(value)} is not supported: use one of {', '.join(known.values())}"
