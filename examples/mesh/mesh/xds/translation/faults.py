"""The error of a state that no proxy could use, and short forms that several modules need."""

from __future__ import annotations

from typing import Final

from mesh.xds import messages as m

ADS: Final = m.ConfigSource(ads=m.AggregatedConfigSource(), resource_api_version=m.ApiVersion.V3)
"""The stream that a resource is found on: the one of the resource that names it."""


class Unfit(Exception):
    """A part of a proxy state that no proxy could use. The message names the field, the value and what is right."""


def regex(pattern: str) -> m.StringMatcher:
    """Return the matcher of a pattern, which must match the whole text."""
    return m.StringMatcher(safe_regex=m.RegexMatcher(regex=pattern))


def socket_address(host: str, port: int) -> m.Address:
    """Return the address of a host and a port."""
    return m.Address(socket_address=m.SocketAddress(address=host, port_value=port))
