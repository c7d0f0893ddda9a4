"""Messages that no honest client sends: protobuf of any shape, absurd names, and requests that are not gRPC."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from grpclib.const import Status
from h2.errors import ErrorCodes
from hypothesis import strategies as st

from headway.protobuf import encode
from headway.resource import pb
from headway.rpc import framed
from tests.rpc.hostile_bytes import READ
from tests.rpc.hostile_caller import Headers, Shot, calling
from tests.rpc.rpc_kit import THING

_VERBS = ("Read", "Write", "WriteStatus", "List", "ListByOwner", "Delete", "WatchList", "MutateAndValidate")
_RESOURCE_SERVICES = ("headway.resource.v1.ResourceService", "hashicorp.consul.resource.ResourceService")
METHODS = (
    *(f"/{service}/{verb}" for service in _RESOURCE_SERVICES for verb in _VERBS),
    *(f"/headway.lease.v1.LeaseService/{v}" for v in ("Acquire", "KeepAlive", "Release", "Raise", "RecordSettled")),
    *(f"/grpc.health.v1.Health/{verb}" for verb in ("Check", "Watch")),
    *(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")),
)
WRITE, WATCH = METHODS[1], METHODS[6]
NAMES = (
    "",
    "\0",
    "a\0b",
    "../..",
    "\u202e",
    "💣" * 300,
    "ﷺ" * 5000,
    "a" * 64,
    "A",
    "-",
    "%s%n",
    "\ufeff",
    "*",
    "\x7f",
    "a" * 3_000_000,
)
_NUMBERS = (*range(1, 9), 15, 100, 101, 102, 2047, (1 << 29) - 1)


def request_named(name: str) -> bytes:
    """Return a Write that is valid except for its name."""
    id = pb.Id(name=name, type=THING.name.message(), tenancy=pb.Tenancy(partition=name[:99], namespace=name[:99]))
    return encode(pb.WriteRequest(resource=pb.Resource(id=id, metadata={name[:1000]: name[:1000]})))


def varint(value: int) -> bytes:
    """Encode a number like protobuf does, in up to ten bytes and beyond."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, wire: int, body: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(body)) if wire == 2 else b"") + body


def bodies() -> st.SearchStrategy[bytes]:
    """Generate bytes and nested fields, with field numbers of the schema and arbitrary wire types."""
    numbers, leaf = st.sampled_from(_NUMBERS), st.binary(max_size=24) | st.text(max_size=8).map(str.encode)
    within = st.recursive(
        leaf,
        lambda inner: st.lists(
            st.builds(_field, numbers, st.sampled_from((2, 2, 2, 0, 1, 3, 4, 5, 6, 7)), inner), max_size=4
        ).map(b"".join),
        max_leaves=6,
    )
    return st.binary(max_size=64) | within


def arbitrary(chance: random.Random, depth: int = 0) -> bytes:
    """Return such bytes from a random generator. It is faster and nests deeper."""
    out = bytearray()
    for _ in range(chance.randint(0, 4)):
        number, wire = chance.choice(_NUMBERS), chance.choice((2, 2, 2, 2, 0, 1, 3, 4, 5, 6, 7))
        if wire == 2:
            inner = chance.random()
            body = arbitrary(chance, depth + 1) if inner < 0.6 and depth < 6 else chance.choice(NAMES[:-1]).encode()
            out += _field(number, 2, body)
            if inner > 0.95:
                out += varint(number << 3 | 2) + varint(chance.getrandbits(chance.choice((8, 32, 64, 80))))
        else:
            out += _field(number, wire, chance.randbytes(chance.choice((0, 1, 4, 8, 11))))
    return bytes(out)


def valid_messages() -> list[bytes]:
    """Return one message of each kind, to be mutated."""
    id = pb.Id(name="victim", type=THING.name.message(), tenancy=pb.Tenancy(partition="default", namespace="default"))
    owner = pb.Id(name="owner", type=THING.name.message(), uid="01")
    fence = pb.Fence(controller="rpc/x", member="m", term=1, number=2)
    status = pb.Status(observed_generation="1", conditions=[pb.Condition(type="a", reason="b", message="c")])
    resource = pb.Resource(id=id, owner=owner, metadata={"a": "b", "c": ""}, status={"s": status})
    position = pb.Position(store_id="s", incarnation="i", revision=7)
    everything = pb.WatchListRequest(type=THING.name.message(), resume_after=position, bookmark_interval_ms=1)
    return [
        encode(pb.ReadRequest(id=id, min_revision=1)),
        encode(pb.WriteRequest(resource=resource, fence=fence, store_id="s")),
        encode(pb.WriteRequest(resource=pb.Resource(id=id))),
        encode(pb.WriteStatusRequest(id=id, key="k", version="1", status=status, fence=fence)),
        encode(pb.ListRequest(type=THING.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))),
        encode(pb.DeleteRequest(id=id, version="1")),
        encode(everything),
    ]


def messages(chance: random.Random, count: int) -> Iterator[bytes]:
    """Yield arbitrary messages, and valid ones that are cut, flipped or doubled."""
    valid = valid_messages()
    for _ in range(count):
        if chance.random() < 0.4:
            yield arbitrary(chance)
            continue
        body = bytearray(chance.choice(valid))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(body))
            match chance.randrange(4):
                case 0:
                    body[at] ^= 1 << chance.randrange(8)
                case 1:
                    body[at:at] = chance.randbytes(chance.randint(1, 8))
                case 2:
                    body += body[at:]
                case _:
                    del body[at + 1 :]
        yield bytes(body)


def shots(chance: random.Random, count: int) -> list[Shot]:
    """Yield messages for every method. Most have a valid prefix."""
    made = []
    for number, body in enumerate(messages(chance, count)):
        whole = framed(body)
        if chance.random() < 0.1:
            whole = chance.choice(
                (whole[:-1], whole + b"\0", b"\1" + whole[1:], b"\0\xff\xff\xff\xff" + body, whole * 3)
            )
        made.append(Shot(calling(METHODS[number % len(METHODS)]), whole))
    return made


class Wrong(NamedTuple):
    """A request with one error and the expected refusal.

    The refusal is gRPC's status, HTTP's if the request isn't gRPC, or the reset of its stream if it isn't even HTTP.
    """

    headers: Headers
    body: bytes
    status: Status | ErrorCodes | int


def _at(status: Status | ErrorCodes | int, body: bytes = framed(b""), path: str = READ, **changed: str | None) -> Wrong:
    return Wrong(calling(path, **changed), body, status)


_REFUSED = Status.INVALID_ARGUMENT
_MALFORMED = ErrorCodes.PROTOCOL_ERROR
WRONG_REQUESTS: dict[str, Wrong] = {
    "compressed flag": _at(Status.UNIMPLEMENTED, b"\x01\0\0\0\0"),
    "unknown flag": _at(Status.UNIMPLEMENTED, b"\xff\0\0\0\0"),
    "length of 4 GiB": _at(Status.RESOURCE_EXHAUSTED, b"\0\xff\xff\xff\xff"),
    "message of 10 MiB": _at(Status.RESOURCE_EXHAUSTED, framed(bytes(10 << 20))),
    "prefix cut": _at(Status.INTERNAL, b"\0\0\0"),
    "message cut": _at(Status.INTERNAL, b"\0\0\0\0\x09abc"),
    "no message": _at(Status.INTERNAL, b""),
    "protobuf cut": _at(_REFUSED, framed(b"\x0a\x7f")),
    "protobuf with a varint without end": _at(_REFUSED, framed(b"\xff" * 20)),
    "protobuf with a group without end": _at(_REFUSED, framed(b"\x0b" * 10_000)),
    "text that is not UTF-8": _at(_REFUSED, framed(b"\x0a\x04\x12\x02\xff\xfe")),
    "metadata of a hundred thousand entries": _at(_REFUSED, framed(b"\x0a\x05\x2a\x03\x0a\x01a" * 100_000), WRITE),
    "metadata key of a megabyte": _at(_REFUSED, framed(request_named("m" * 1_000_000)), WRITE),
    "content type of JSON": _at(415, content_type="application/json"),
    "content type of gRPC with JSON": _at(415, content_type="application/grpc+json"),
    "no content type": _at(415, content_type=None),
    "no te header": _at(400, te=None),
    "wrong te": _at(_MALFORMED, te="gzip"),
    "no method": _at(_MALFORMED, pseudo_method=None),
    "GET": _at(405, pseudo_method="GET"),
    "no path": _at(_MALFORMED, pseudo_path=None),
    "empty path": _at(_MALFORMED, path=""),
    "path of slashes": _at(Status.UNIMPLEMENTED, path="/" * 1000),
    "path of NUL": _at(_MALFORMED, path="/\0/\0"),
    "path that is not ASCII": _at(Status.UNIMPLEMENTED, path="/" + "ﷺ" * 4000),
    "service without method": _at(Status.UNIMPLEMENTED, path=READ.rpartition("/")[0]),
    "deadline that is negative": _at(Status.INTERNAL, grpc_timeout="-1S"),
    "deadline that is garbage": _at(Status.INTERNAL, grpc_timeout="soon"),
    "deadline that is empty": _at(Status.INTERNAL, grpc_timeout=""),
    "deadline without unit": _at(Status.INTERNAL, grpc_timeout="5"),
    "deadline of five thousand digits": _at(Status.INTERNAL, grpc_timeout="9" * 5000 + "H"),
    "deadline of four hundred digits": _at(Status.INTERNAL, grpc_timeout="9" * 400 + "H"),
    "deadline of a thousand years": _at(_REFUSED, grpc_timeout="99999999H"),
    "binary metadata that is not base64": _at(Status.INTERNAL, x_bin="A"),
    "binary metadata that is not ASCII": _at(Status.INTERNAL, x_bin="ﷺ"),
    "unknown encoding": _at(_REFUSED, grpc_encoding="brotli", grpc_accept_encoding="x"),
    "no scheme": _at(_MALFORMED, pseudo_scheme=None),
    "name in upper case": _at(_MALFORMED, X_UP="a"),
    "name that is empty": Wrong([*calling(READ), ("", "a")], framed(b""), _MALFORMED),
    "name with a space": Wrong([*calling(READ), ("x y", "a")], framed(b""), _MALFORMED),
    "value with a line feed": _at(_MALFORMED, x_a="a\nx-b: c"),
    "value with a carriage return": _at(_MALFORMED, x_a="a\r"),
    "value with NUL": _at(_MALFORMED, grpc_encoding="\0"),
    "connection header": _at(_MALFORMED, connection="keep-alive"),
    "transfer-encoding header": _at(_MALFORMED, transfer_encoding="chunked"),
    "pseudo-header of an answer": Wrong([(":status", "200"), *calling(READ)], framed(b""), _MALFORMED),
    "unknown pseudo-header": Wrong([(":new", "a"), *calling(READ)], framed(b""), _MALFORMED),
    "pseudo-header twice": Wrong([(":path", READ), *calling(READ)], framed(b""), _MALFORMED),
    "pseudo-header late": Wrong([*calling(READ, pseudo_path=None), (":path", READ)], framed(b""), _MALFORMED),
    # This call needs no token, so its size is limited and it is refused unread.
    "health of a service with an absurd name": _at(
        Status.RESOURCE_EXHAUSTED, framed(_field(1, 2, b"s" * 3_000_000)), "/grpc.health.v1.Health/Check"
    ),
    "prefix with an absurd name": _at(
        _REFUSED,
        framed(encode(pb.ListRequest(type=THING.name.message(), tenancy=pb.Tenancy(), name_prefix="P" * 3_000_000))),
        METHODS[3],
    ),
    "type with an absurd name": _at(
        _REFUSED,
        framed(
            encode(
                pb.ListRequest(
                    type=pb.Type(group="g" * 1_000_000, group_version="v1", kind="Kind"), tenancy=pb.Tenancy()
                )
            )
        ),
        METHODS[3],
    ),
}
