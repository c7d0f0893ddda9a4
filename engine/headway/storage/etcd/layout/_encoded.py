"""Transactions whose parts are encoded one by one, to the bytes of a `TxnRequest`, and their replies. Pure.

A transaction has up to a hundred comparisons and puts. Messages for each would cost more than the rest of the
transaction.
"""

from __future__ import annotations

from headway._gen.etcdserverpb import ResponseHeader
from headway.protobuf import field, message


@message(name="headway.etcd.Transaction")
class Transaction:
    """A TxnRequest with an encoded Compare or RequestOp in each element."""

    compare: list[bytes] = field(1)
    success: list[bytes] = field(2)


@message(name="headway.etcd.TransactionReply")
class TransactionReply:
    """A TxnResponse without the responses to its operations."""

    header: ResponseHeader | None = field(1)
    succeeded: bool = field(2)


def comparison(key: bytes, revision: int) -> bytes:
    """Return the encoded comparison that a key was last changed at this revision of etcd. With 0, it must not exist."""
    # The result EQUAL is 0 and not encoded. The target MOD is 2.
    return b"".join((b"\x10\x02\x1a", _varint(len(key)), key, b"\x30", _varint(revision)))


def put(key: bytes, value: bytes) -> bytes:
    """Return the encoded operation that puts a key. The value must not be empty."""
    key_size, value_size = _varint(len(key)), _varint(len(value))
    size = _varint(len(key_size) + len(key) + len(value_size) + len(value) + 2)
    return b"".join((b"\x12", size, b"\x0a", key_size, key, b"\x12", value_size, value))


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    return bytes((number & 0x7F | 0x80,)) + _varint(number >> 7)
