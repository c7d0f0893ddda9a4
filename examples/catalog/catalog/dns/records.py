"""The answers of a zone: A, AAAA, CNAME, SRV and PTR records of instances, and SOA and NS. No I/O."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress

import dns.exception
import dns.name
import dns.rcode
from dns.rdatatype import AAAA, ANY, CNAME, NS, PTR, SOA, SRV, A

from catalog.dns import names
from catalog.dns.answers import Answer, record
from catalog.dns.instances import Instance
from catalog.dns.names import IPAddress, Target
from headway.resource import quoted

_PRIORITY = 1
_SRV, _SOA = struct.Struct("!HHH"), struct.Struct("!IIIII")
# The refresh, retry and expire times of the SOA record are for secondary servers. There are no such servers.
_SERIAL, _REFRESH, _RETRY, _EXPIRE = 1, 3_600, 600, 86_400


LONGEST_TTL = 2**31 - 1
"""The most seconds for which a resolver may keep a record (RFC 2181)."""


class Records:
    """Makes the answers of one domain, whose records resolvers may keep for ``ttl`` seconds.

    Its name server, ``ns`` below the domain, has ``address``.

    Raises:
        ValueError: no records can be made for this domain, or with this ttl.
    """

    def __init__(self, domain: str, ttl: int, address: IPAddress) -> None:
        if not 0 <= ttl <= LONGEST_TTL:
            raise ValueError(f"ttl is {ttl}: it must be a number of seconds from 0 to {LONGEST_TTL}, such as 5")
        self._ttl = ttl
        self._server = address
        try:
            self.origin = dns.name.from_text(domain)
            # The longest names in records that every query can ask for.
            self._below(names.address_labels(ipaddress.IPv6Address(0)))
        except dns.exception.DNSException as error:
            raise ValueError(f"domain {quoted(domain)} is not usable: {error} Use one such as 'consul'") from None
        if self.origin == dns.name.root:
            raise ValueError(f"domain {domain!r} would be all names: use one such as 'consul'")

    def of_instances(self, instances: Iterable[Instance], qtype: int) -> Answer:
        """Answer a question about instances."""
        if qtype == SRV:
            return self._services(instances)
        hosts: dict[IPAddress | str, int] = {}
        for each in instances:
            hosts[each.host] = hosts.get(each.host, 0) + each.weight
        addresses = {host: weight for host, weight in hosts.items() if not isinstance(host, str)}
        if not addresses and hosts:
            # An alias stands for records of every type (RFC 1034, 3.6.2).
            aliases = [record(CNAME, _wire(_name(str(host))), self._ttl) for host in hosts]
            return self._positive(aliases, list(hosts.values()), one=True)
        wanted = {host: weight for host, weight in addresses.items() if qtype in (ANY, _family(host))}
        return self._positive([self._address(host, None) for host in wanted], list(wanted.values()))

    def of_address(self, address: IPAddress, qtype: int) -> Answer:
        """Answer a question about the name of an address."""
        return self.of_instances([Instance(address, (), 1)], qtype)

    def pointers(self, targets: Iterable[Target], zone: Sequence[str]) -> Answer:
        """Answer a question about a reverse name in a zone of such names."""
        found = []
        for each in targets:
            # A name that is too long for DNS has no reverse name either.
            with suppress(dns.exception.DNSException, UnicodeEncodeError):
                found.append(record(PTR, _wire(self._below(names.target_labels(each))), self._ttl))
        return self._positive(found, [], zone=zone)

    def apex(self, qtype: int, zone: Sequence[str] = ()) -> Answer:
        """Answer a question about the domain itself, or about a zone of reverse names."""
        server = self._below(names.SERVER_LABELS)
        found = []
        if qtype in (SOA, ANY):
            found.append(self._soa(None))
        if qtype in (NS, ANY):
            found.append(record(NS, _wire(server), self._ttl))
        if not found:
            return self.nodata(zone)
        return Answer(records=found, additional=[self._address(self._server, server)] * len(found))

    def server(self, qtype: int) -> Answer:
        """Answer a question about the name of the name server."""
        return self.of_address(self._server, qtype)

    def nodata(self, zone: Sequence[str] = ()) -> Answer:
        """Answer that the name exists without such a record."""
        return Answer(authority=self._soa(_name(".".join(zone)) if zone else self.origin))

    def nxdomain(self, zone: Sequence[str] = ()) -> Answer:
        """Answer that neither the name nor one below it exists."""
        return Answer(dns.rcode.NXDOMAIN, authority=self._soa(_name(".".join(zone)) if zone else self.origin))

    def _services(self, instances: Iterable[Instance]) -> Answer:
        records, weights, additional = [], [], []
        for each in instances:
            if isinstance(each.host, str):
                host, more = _name(each.host), b""
            else:
                host = self._below(names.address_labels(each.host))
                more = self._address(each.host, host)
            for _, number in each.ports:
                records.append(record(SRV, _SRV.pack(_PRIORITY, each.weight, number) + _wire(host), self._ttl))
                weights.append(each.weight)
                additional.append(more)
        return self._positive(records, weights, additional=additional if any(additional) else ())

    def _address(self, host: IPAddress, owner: dns.name.Name | None) -> bytes:
        return record(_family(host), host.packed, self._ttl, _wire(owner) if owner is not None else b"")

    def _positive(
        self,
        records: Sequence[bytes],
        weights: Sequence[int],
        *,
        additional: Sequence[bytes] = (),
        one: bool = False,
        zone: Sequence[str] = (),
    ) -> Answer:
        if not records:
            return self.nodata(zone)
        differ = len(set(weights)) > 1
        return Answer(records=records, weights=weights if differ else (), additional=additional, one=one)

    def _soa(self, owner: dns.name.Name | None) -> bytes:
        """Encode the SOA record, whose last number says how long a negative answer may be kept."""
        numbers = _SOA.pack(_SERIAL, _REFRESH, _RETRY, _EXPIRE, self._ttl)
        data = b"".join((_wire(self._below(names.SERVER_LABELS)), _wire(self._below(["hostmaster"])), numbers))
        return record(SOA, data, self._ttl, _wire(owner) if owner is not None else b"")

    def _below(self, labels: Sequence[str]) -> dns.name.Name:
        return dns.name.Name([*(label.encode("ascii") for label in labels), *self.origin.labels])


def _family(host: IPAddress | str) -> int:
    return A if not isinstance(host, str) and host.version == 4 else AAAA


def _name(text: str) -> dns.name.Name:
    return dns.name.from_text(text, dns.name.root)


def _wire(name: dns.name.Name) -> bytes:
    wire = name.to_wire()
    assert wire is not None
    return wire
