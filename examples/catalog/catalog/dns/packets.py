"""From the bytes of a query to the bytes of its answer. No I/O. No packet raises an exception.

| query | answer |
| --- | --- |
| not a DNS message with a header, or itself an answer | none |
| an operation other than a query | NOTIMP |
| larger than `LARGEST_QUERY`, with other records than a query has, or malformed in another way | FORMERR |
| a version of EDNS other than 0 | BADVERS |
| a class other than IN, a zone transfer | REFUSED |
| anything else, while the cache may not be answered from | SERVFAIL |
| a name outside the domain | REFUSED |
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype

from catalog.dns.answers import HEADER, Answer
from catalog.dns.zone import REFUSED, Zone
from headway import HeadwayError

SMALLEST_LIMIT, LARGEST_UDP, LARGEST_TCP = 512, 1232, 65_535
"""The sizes of answers in bytes: over UDP without EDNS, over UDP at most, and over TCP."""

LARGEST_QUERY = 4_096
"""The largest query in bytes."""

_PLANS, _LARGEST_PLAN = 4_096, 300
_MOST_ADDITIONAL = 2
_TRANSFERS = (dns.rdatatype.AXFR, dns.rdatatype.IXFR)
_FORMERR, _NOTIMP, _SERVFAIL = (Answer(code) for code in (dns.rcode.FORMERR, dns.rcode.NOTIMP, dns.rcode.SERVFAIL))
# BADVERS is 16: its upper bits are in the OPT record.
_BADVERS = Answer(dns.rcode.BADVERS)


class Plan(NamedTuple):
    """How to answer a query, apart from its id.

    Attributes:
        labels: the labels of the name, in lower case, without the root's.
        fixed: the answer that does not depend on the catalog; None if it does.
        flags: the flags of the answer.
        question: the question, encoded as it was sent.
        udp: the largest answer over UDP.
        opt: the OPT record of the answer.
    """

    labels: tuple[str, ...]
    qtype: int
    fixed: Answer | None
    flags: int
    question: bytes
    udp: int
    opt: bytes


class Responder:
    """Answers packets.

    Args:
        zone: returns the zone, or None while it may not be used.
        chance: makes the order of records.
    """

    def __init__(self, zone: Callable[[], Zone | None], chance: random.Random | None = None) -> None:
        self._zone = zone
        self._chance = chance or random.Random()
        # Most queries repeat an earlier one in all but the id.
        self._plans: dict[bytes, Plan] = {}

    def answer(self, packet: bytes, *, tcp: bool = False) -> bytes | None:
        """Return the answer to a packet, or None if it must not be answered."""
        if len(packet) < HEADER.size or packet[2] & 0x80:
            return None
        plan = self._plans.get(packet[2:])
        if plan is None:
            plan = self._learn(packet)
        answer = plan.fixed
        if answer is None:
            answer = self._find(plan)
        flags = plan.flags if answer.rcode in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN) else plan.flags & ~dns.flags.AA
        limit = LARGEST_TCP if tcp else plan.udp
        return answer.write(packet[:2], flags, plan.question, limit, self._chance, plan.opt)

    def _find(self, plan: Plan) -> Answer:
        zone = self._zone()
        if zone is None:
            return _SERVFAIL
        try:
            return zone.find(plan.labels, plan.qtype)
        except HeadwayError:
            # A stored payload that does not decode, or an index that lacks such a resource.
            return _SERVFAIL

    def _learn(self, packet: bytes) -> Plan:
        plan = read(packet)
        if len(packet) <= _LARGEST_PLAN:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[packet[2:]] = plan
        return plan


def failure(packet: bytes) -> bytes:
    """Return SERVFAIL for a packet that has a header and is no answer, whatever else it has."""
    flags = int(dns.flags.QR) | (packet[2] & 0x78) << 8 | (packet[2] << 8) & dns.flags.RD
    return _SERVFAIL.write(packet[:2], flags, b"", SMALLEST_LIMIT, random.Random(0), b"")


def read(packet: bytes) -> Plan:
    """Return the plan for a packet that has a header. Never raises."""
    _, sent, *counts, more = HEADER.unpack_from(packet)
    opcode = packet[2] >> 3 & 0xF
    flags = int(dns.flags.QR) | opcode << 11 | sent & dns.flags.RD
    if opcode != dns.opcode.QUERY:
        return Plan((), 0, _NOTIMP, flags, b"", SMALLEST_LIMIT, b"")
    malformed = Plan((), 0, _FORMERR, flags, b"", SMALLEST_LIMIT, b"")
    # Before the message is read, so that it costs little: one question, and nothing but EDNS and a signature.
    if counts != [1, 0, 0] or more > _MOST_ADDITIONAL or len(packet) > LARGEST_QUERY:
        return malformed
    try:
        message = dns.message.from_wire(packet)
    except dns.exception.DNSException:
        return malformed
    if len(message.question) != 1:
        return malformed
    asked = message.question[0]
    labels = tuple(label.decode("latin-1").lower() for label in asked.name.labels[:-1])
    # The name as the sender wrote it: resolvers compare its case.
    question = b"".join(
        (asked.name.to_wire() or b"", asked.rdtype.to_bytes(2, "big"), asked.rdclass.to_bytes(2, "big"))
    )
    fixed: Answer | None = None
    if message.edns > 0:
        fixed = _BADVERS
    elif asked.rdclass not in (dns.rdataclass.IN, dns.rdataclass.ANY) or asked.rdtype in _TRANSFERS:
        fixed = REFUSED
    udp = min(max(message.payload, SMALLEST_LIMIT), LARGEST_UDP) if message.edns >= 0 else SMALLEST_LIMIT
    opt = _opt(fixed.rcode if fixed is not None else 0) if message.edns >= 0 else b""
    return Plan(labels, asked.rdtype, fixed, flags | dns.flags.AA, question, udp, opt)


def _opt(rcode: int) -> bytes:
    """Encode an OPT record (RFC 6891) with our largest UDP size and the upper bits of the rcode."""
    fixed = (b"\0", dns.rdatatype.OPT.to_bytes(2, "big"), LARGEST_UDP.to_bytes(2, "big"), bytes([rcode >> 4, 0, 0, 0]))
    return b"".join((*fixed, b"\0\0"))
