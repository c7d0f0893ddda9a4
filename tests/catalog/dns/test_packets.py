"""Malformed and hostile packets: each gets the right answer or no answer, and none raises an exception."""

from __future__ import annotations

import struct
import time

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.dns import Responder
from tests.catalog.dns.dns_kit import endpoint, open_catalog, query

NAME = "web.service.consul"
GOOD = query(NAME)
_NOTHING = Responder(lambda: None)


def header(*, flags: int = 0, questions: int = 1, answers: int = 0, more: int = 0) -> bytes:
    """Return a header."""
    return struct.pack("!HHHHHH", 7, flags, questions, answers, 0, more)


def with_flags(packet: bytes, flags: int) -> bytes:
    """Return a packet with other flags."""
    return packet[:2] + struct.pack("!H", flags) + packet[4:]


# A name that is a pointer to itself, two that point to each other, and one behind the end.
LOOPS = [b"\xc0\x0c", b"\x01a\xc0\x0e", b"\xc0\x0e\xc0\x0c", b"\xff\xff"]
MALFORMED = [
    header(),
    GOOD[:-1],
    header(questions=0),
    header(questions=2) + GOOD[12:] * 2,
    header(questions=65_535),
    header(answers=65_535) + GOOD[12:],
    header(more=1) + GOOD[12:] + b"\0\0\x29",
    *(header() + each + b"\0\1\0\1" for each in LOOPS),
    header() + b"\x3f" * 300,
    GOOD + b"rest",
    # A signature with an unknown key.
    header(more=1) + GOOD[12:] + b"\x01k\0" + struct.pack("!HHIH", 250, 255, 0, 16) + b"\0" * 16,
]


@pytest.mark.parametrize("packet", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_query_is_answered_by_formerr(packet: bytes) -> None:
    answer = _NOTHING.answer(packet)
    assert answer is not None
    assert dns.message.from_wire(answer).rcode() == dns.rcode.FORMERR
    assert answer[:2] == packet[:2]
    assert len(answer) <= len(packet)


def test_answers_and_short_packets_get_no_answer() -> None:
    """An answer to an answer could go back and forth for ever."""
    for packet in (b"", GOOD[:11], with_flags(GOOD, dns.flags.QR), _NOTHING.answer(GOOD)):
        assert packet is not None
        assert _NOTHING.answer(packet) is None


def test_other_operations_versions_and_classes_are_refused_by_name() -> None:
    wanted: list[tuple[bytes, dns.rcode.Rcode]] = [
        (with_flags(GOOD, dns.opcode.to_flags(dns.opcode.UPDATE)), dns.rcode.NOTIMP),
        (with_flags(GOOD, dns.opcode.to_flags(dns.opcode.NOTIFY)), dns.rcode.NOTIMP),
        (with_flags(GOOD, 15 << 11), dns.rcode.NOTIMP),
        (dns.message.make_query(NAME, "A", use_edns=1).to_wire(), dns.rcode.BADVERS),
        (dns.message.make_query(NAME, "A", rdclass="CH").to_wire(), dns.rcode.REFUSED),
        (query(NAME, "AXFR"), dns.rcode.REFUSED),
        (GOOD, dns.rcode.SERVFAIL),
    ]
    for packet, rcode in wanted:
        answer = _NOTHING.answer(packet)
        assert answer is not None
        assert dns.message.from_wire(answer, ignore_trailing=False).rcode() == rcode


_LABELS = st.binary(min_size=1, max_size=63)
_WIRE_NAMES = st.lists(_LABELS, max_size=5).map(
    lambda labels: b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
)


@st.composite
def packets(draw: st.DrawFn) -> bytes:
    """Return bytes, or a query with changed bytes, another name, and records that it should not have."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=80))
    name = draw(st.one_of(_WIRE_NAMES, st.just(GOOD[12:-4])))
    record = draw(_WIRE_NAMES) + draw(st.binary(min_size=10, max_size=10)) + draw(st.binary(max_size=20))
    more = draw(st.integers(0, 2))
    packet = bytearray(header(flags=draw(st.integers(0, 0xFFFF)), more=more) + name + draw(st.binary(max_size=6)))
    packet += record * more
    for place in draw(st.lists(st.integers(0, len(packet) - 1), max_size=4)):
        packet[place] = draw(st.integers(0, 255))
    return bytes(packet)


async def test_hostile_packets_never_raise_and_never_get_a_larger_answer_than_allowed() -> None:
    """Every answer can be read, has the query's id, and keeps to the size that the query allows."""
    async with open_catalog() as catalog:
        await catalog.endpoints("web", *(endpoint(f"10.0.0.{number}") for number in range(200)))
        responder = catalog.responder

        @given(packets(), st.booleans())
        @example(GOOD, False)
        def check(packet: bytes, tcp: bool) -> None:
            answer = responder.answer(packet, tcp=tcp)
            if answer is not None:
                read = dns.message.from_wire(answer)
                assert answer[:2] == packet[:2]
                assert read.flags & dns.flags.QR
                assert tcp or len(answer) <= 1_232

        check()


def test_largest_and_most_tangled_packets_cost_a_bounded_time() -> None:
    """Their processor time is compared with the time for an ordinary query that has not been asked before."""
    tangled = b"".join(b"\x3f" + bytes([number]) * 63 for number in range(3)) + b"\xc0\x0c"
    record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + b"\0" * 4
    options = struct.pack("!HH", 10, 0) * 900
    hostile = [
        header(answers=4_000) + GOOD[12:] + record * 4_000,
        header(more=2) + GOOD[12:] + record * 2,
        header(more=1) + GOOD[12:] + b"\0" + struct.pack("!HHIH", 41, 1_232, 0, len(options)) + options,
        header() + tangled + b"\0\1\0\1",
        header(questions=65_535) + GOOD[12:] * 3_000,
        header() + b"\1a" * 32_000,
    ]

    def cost(packet: bytes) -> float:
        best = float("inf")
        for _ in range(5):
            begin = time.process_time()
            for _ in range(20):
                Responder(lambda: None).answer(packet)
            best = min(best, time.process_time() - begin)
        return best

    ordinary = cost(GOOD)
    for packet in hostile:
        assert cost(packet) < 100 * ordinary
