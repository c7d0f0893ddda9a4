"""The first lines of a request: its target in each form, and the ends of its lines."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel

from headway.observe import open_pages
from tests.http.kit import CORE, TEAM, Team, allowing, asked, serving
from tests.http.test_limits import raw

END = b"\r\nhost: localhost\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (b"http://localhost" + CORE.encode(), b"200"),
        (b"HTTP://127.0.0.1:8080" + CORE.encode() + b"?ns=default", b"200"),
        (b"https://localhost" + CORE.encode(), b"200"),
        (b"http://localhost", b"404"),
        (b"http://localhost?x", b"404"),
        (b"http://" + CORE.encode(), b"403"),
        (b"http://elsewhere.example" + CORE.encode(), b"403"),
        (b"http://localhost@elsewhere.example" + CORE.encode(), b"403"),
        (b"ftp://localhost" + CORE.encode(), b"404"),
        (b"*", b"404"),
    ],
)
async def test_target_in_absolute_form_is_that_of_its_path(target: bytes, code: bytes) -> None:
    """Its host counts, whatever the header says."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core", Team(note="x")))
        for host in (b"localhost", b"elsewhere.example"):
            if not target.lower().startswith(b"http") and host != b"localhost":
                continue
            answer = await raw(api, b"GET " + target + b" HTTP/1.1" + END.replace(b"localhost", host))
            assert answer.startswith(b"HTTP/1.1 " + code), (host, answer)


HEAD = b"PUT %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" % CORE.encode()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\nhost: localhost\n\n",
        b"\nGET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\n",
        b"GET / HTTP/1.1\r\nhost: localhost\nx: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: y\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: y\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("pieces", [1, 4])
async def test_line_without_carriage_return_is_refused(request_: bytes, pieces: int) -> None:
    """A proxy may not take it for the end of a line, and find another request behind it."""
    async with serving() as api:
        size = -(-len(request_) // pieces)
        with trio.fail_after(30):
            host, _, port = api.address.rpartition(":")
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                for at in range(0, len(request_), size):
                    await stream.send_all(request_[at : at + size])
                    await trio.lowlevel.checkpoint()
                answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 400"), answer


async def test_body_may_have_any_line_feeds() -> None:
    async with serving() as api:
        body = b'{"data":\n{"note":\n\n"x"}}\n'
        plain = await raw(api, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        chunked = await raw(
            api, HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nx: y\r\n\r\n" % (len(body), body)
        )
        assert plain.startswith(b"HTTP/1.1 200"), plain
        assert chunked.startswith(b"HTTP/1.1 200"), chunked


async def test_head_of_a_watch_opens_none() -> None:
    """It has the head of the answer, and its right and its limits are those of the watch."""
    access, _, _ = allowing(anonymous=[])
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        with trio.fail_after(20):
            answer = await api.http.head("/api/staff/v1/team?watch")
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
            # The connection is free for the next request.
            assert (await api.http.get(CORE)).status_code == 200
            one = await api.http.head(CORE)
            assert int(one.headers["content-length"]) == len((await api.http.get(CORE)).content)
    async with serving(access) as api:
        assert (await api.http.head("/api/staff/v1/team?watch")).status_code == 403


async def test_pages_have_targets_in_absolute_form_too() -> None:
    async with open_pages("127.0.0.1:0", list) as address:
        for target, code in (("/healthz", 200), ("http://localhost/healthz", 200), ("/health%7a", 404)):
            async with asked(address, target) as answer:
                assert answer.code == code
