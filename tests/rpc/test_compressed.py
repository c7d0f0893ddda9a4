"""Compressed requests: they are refused as gRPC defines it, and clients learn which encoding is accepted."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc
from h2.events import ResponseReceived, TrailersReceived

from headway.protobuf import decode, encode
from headway.rpc import framed
from tests.rpc.raw_kit import HEADERS, connected
from tests.rpc.rpc_kit import COUNT, ECHO, Text, served
from tests.rpc.test_stock_clients import in_thread

TEXT = Text(text="a" * 1000)


async def test_grpcio_learns_that_compression_is_not_supported() -> None:
    """Without it, its calls succeed, though it says that it accepts compressed replies."""

    def client(where: str, compression: grpc.Compression) -> tuple[grpc.StatusCode, str, str]:
        with grpc.insecure_channel(where, compression=compression) as channel:
            try:
                reply: Any = channel.unary_unary(ECHO)(encode(TEXT), timeout=20)
            except grpc.RpcError as error:
                return error.code(), error.details(), ""
            return grpc.StatusCode.OK, "", decode(Text, reply).text

    async with served() as it:
        compressed = await in_thread(lambda: client(it.where, grpc.Compression.Gzip))
        plain = await in_thread(lambda: client(it.where, grpc.Compression.NoCompression))
    details = "compressed messages are not supported: send them as they are (grpc-encoding: identity)"
    assert compressed == (grpc.StatusCode.UNIMPLEMENTED, details, "")
    assert plain == (grpc.StatusCode.OK, "", TEXT.text)


async def test_refusal_names_the_encoding_that_is_accepted() -> None:
    """It is one block of headers, for unary calls and for streams. The first call of a connection takes another way."""
    async with served() as it, connected(it.where) as raw:
        for id, path in ((1, ECHO), (3, ECHO), (5, COUNT)):
            headers = [(name, path if name == ":path" else value) for name, value in HEADERS]
            raw.h2.send_headers(id, [*headers, ("grpc-encoding", "gzip")])
            raw.h2.send_data(id, b"\x01" + framed(b"content")[1:], end_stream=True)
            await raw.flush()
            event = await raw.until(partial(_is_answer, id))
            answered = dict(event.headers)
            assert (answered[b"grpc-status"], answered[b"grpc-accept-encoding"]) == (b"12", b"identity")


def _is_answer(id: int, event: object) -> bool:
    return isinstance(event, ResponseReceived) and event.stream_id == id


async def test_message_that_is_not_compressed_is_accepted_beside_the_header() -> None:
    """A client may compress only some of its messages."""
    async with served() as it, connected(it.where) as raw:
        headers = [(name, ECHO if name == ":path" else value) for name, value in HEADERS]
        raw.h2.send_headers(1, [*headers, ("grpc-encoding", "gzip")])
        raw.h2.send_data(1, framed(encode(TEXT)), end_stream=True)
        await raw.flush()
        trailers = await raw.until(lambda event: isinstance(event, TrailersReceived))
        assert (b"grpc-status", b"0") in trailers.headers
