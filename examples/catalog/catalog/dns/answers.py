"""The bytes of an answer: its records, in an order that follows their weights, until the message is full. No I/O.

A record is encoded once and stands in many messages: its owner is the name of the question, which always begins at the
same byte.
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import dns.flags
import dns.rcode
import dns.rdataclass

MOST_RECORDS = 1_000
"""The most records in one answer. A larger service is answered by a sample that follows the weights."""

HEADER = struct.Struct("!HHHHHH")
_FIXED = struct.Struct("!HHIH")
# A pointer to the name of the question, which follows the header.
_QUESTION_NAME = struct.pack("!H", 0xC000 | HEADER.size)


def record(rdtype: int, data: bytes, ttl: int, owner: bytes = b"") -> bytes:
    """Encode a record. Without an encoded owner, it is the name of the question."""
    return (owner or _QUESTION_NAME) + _FIXED.pack(rdtype, dns.rdataclass.IN, ttl, len(data)) + data


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, in any order.

    Attributes:
        rcode: the result.
        records: the encoded records of the answer.
        weights: the weight of each record, at least 1; empty if they are equal.
        one: True if a single record is answered, as for CNAME.
        additional: what to add for each record, if it fits, or empty; none for nothing at all.
        authority: the encoded SOA record of a negative answer.
    """

    rcode: dns.rcode.Rcode = dns.rcode.NOERROR
    records: Sequence[bytes] = ()
    weights: Sequence[int] = ()
    one: bool = False
    additional: Sequence[bytes] = ()
    authority: bytes = b""
    _sums: Sequence[int] = field(init=False)
    _shortest: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", list(itertools.accumulate(self.weights or [1] * len(self.records))))
        object.__setattr__(self, "_shortest", min(map(len, self.records), default=1))

    def write(self, header: bytes, flags: int, question: bytes, limit: int, chance: random.Random, opt: bytes) -> bytes:
        """Return the message in at most ``limit`` bytes, with TC if records are missing.

        Args:
            header: the two bytes of the query's id.
            flags: the flags of the answer, without TC and the rcode.
            question: the encoded question; empty if it could not be read.
            limit: the largest size of the message.
            chance: makes the order.
            opt: the encoded OPT record; empty without EDNS.
        """
        room = limit - HEADER.size - len(question) - len(opt)
        whole = 1 if self.one else min(len(self.records), MOST_RECORDS)
        order = self.order(min(whole, max(0, room // self._shortest)), chance)
        parts, extra = [], []
        for index in order:
            room -= len(self.records[index])
            if room < 0:
                break
            parts.append(self.records[index])
        cut = len(parts) < whole
        if not cut and self.additional:
            for each in dict.fromkeys(self.additional[index] for index in order if self.additional[index]):
                room -= len(each)
                if room < 0:
                    break
                extra.append(each)
        authority = self.authority if len(self.authority) <= room else b""
        flags |= int(self.rcode) & 0xF | (dns.flags.TC if cut else 0)
        counts = (1 if question else 0, len(parts), 1 if authority else 0, len(extra) + (1 if opt else 0))
        return b"".join((header, HEADER.pack(0, flags, *counts)[2:], question, *parts, authority, *extra, opt))

    def order(self, number: int, chance: random.Random) -> Sequence[int]:
        """Return indexes of records: the first by their weights, the next by the weights of the rest, and so on."""
        everything = range(len(self.records))
        if len(everything) <= 1:
            return everything[:number]
        if number * 8 <= len(everything):
            # Drawn until there are enough, without looking at the rest of a large service.
            drawn = dict.fromkeys(chance.choices(everything, cum_weights=self._sums, k=4 * number))
            if len(drawn) >= number:
                return list(drawn)[:number]
        if not self.weights:
            return chance.sample(everything, number)
        # Of independent exponential times with these rates, the earliest, the second, and so on.
        times = [-math.log(1.0 - chance.random()) / weight for weight in self.weights]
        return sorted(everything, key=times.__getitem__)[:number]
