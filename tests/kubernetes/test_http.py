"""Calls and watches of an API server, also over a network that fails."""

from __future__ import annotations

import gc
import json
import traceback
from dataclasses import replace

import pytest
import trio
import trustme

from headway._version import VERSION
from headway.api import Code, Interrupted, NotBegun, call_of, code_of, ended_a_wait
from headway.errors import HeadwayError, NotHeadway, PermissionDenied, RateLimited, Unauthenticated, Unavailable
from headway.kubernetes import _http
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import ClusterConfig, Content
from tests.kubernetes.conftest import RealServer
from tests.kubernetes.faulty_server import Answer, answer, cut, faulty_server, listening, pieces, refusal, stall

PODS = "/api/v1/pods"
SECRET = "secret-token"


async def _error(config: ClusterConfig, method: str = "GET", *, timeout: float = 5.0) -> HeadwayError:
    """Return the error of a call, which must be one of a call, and show no secret."""
    async with ApiServer(config, timeout=timeout) as server:
        with pytest.raises(HeadwayError) as raised:
            await server.call(method, PODS, body=None if method == "GET" else {})
    assert call_of(raised.value) is not None
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    return raised.value


async def _lines(server: ApiServer, *, until: int = 100, **params: str | int | bool) -> list[bytes]:
    found = []
    async with server.watch(PODS, params) as lines:
        async for line in lines:
            found.append(line)
            if len(found) == until:
                break
    return found


async def _lines_then_fail(server: ApiServer) -> None:
    async with server.watch(PODS) as lines:
        await anext(lines)
        raise ZeroDivisionError


# --- The real server ----------------------------------------------------------


async def test_object_is_created_read_and_deleted(server: ApiServer, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = await server.call("POST", path, body={"metadata": {"name": "a"}, "data": {"a": "ä\u0085"}})
    assert made["data"] == {"a": "ä\u0085"}
    assert await server.call("GET", f"{path}/a") == made
    assert (await server.call("DELETE", f"{path}/a"))["status"] == "Success"


async def test_patch_has_its_own_type_and_parameters(server: ApiServer, namespace: str) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}
    made = await server.call(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/configmaps/a",
        params={"fieldManager": "test", "force": False},
        body=json.dumps(wanted).encode(),
        content_type="application/apply-patch+yaml",
    )
    assert made["metadata"]["managedFields"][0]["manager"] == "test"


async def test_watch_yields_the_objects_and_ends_with_the_server(server: ApiServer) -> None:
    found = []
    async with server.watch(
        "/api/v1/namespaces",
        {
            "sendInitialEvents": True,
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": True,
            "timeoutSeconds": 1,
        },
    ) as lines:
        found = [json.loads(line) async for line in lines]
    assert {"ADDED", "BOOKMARK"} <= {each["type"] for each in found}


async def test_unknown_separators_do_not_cut_a_real_event(server: ApiServer, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = await server.call("POST", path, body={"metadata": {"name": "a"}, "data": {"a": "x\u0085y\u2028z"}})
    async with server.watch(path, {"resourceVersion": str(int(made["metadata"]["resourceVersion"]) - 1)}) as lines:
        event = json.loads(await anext(lines))
    assert event["object"]["data"] == made["data"]


async def test_hundreds_of_watches_leave_room_for_calls(server: ApiServer, namespace: str) -> None:
    async def watch(task_status: trio.TaskStatus[None]) -> None:
        async with server.watch(f"/api/v1/namespaces/{namespace}/configmaps"):
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(130):
            await nursery.start(watch)
        await server.call("GET", f"/api/v1/namespaces/{namespace}")
        nursery.cancel_scope.cancel()


async def test_warnings_of_the_server_reach_the_callback(api_server: RealServer, namespace: str) -> None:
    heard: list[str] = []
    async with ApiServer(api_server.config(), on_warning=heard.append) as server:
        body = {"metadata": {"name": "a"}, "dta": {}, "b": 1}
        await server.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=body)
    assert heard == ['unknown field "dta"', 'unknown field "b"']


async def test_warning_is_reported_once_while_it_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "_MOST_WARNINGS", 2)
    heard: list[str] = []
    warns = [answer(body={}, warning=f'299 - "v1 {each} is deprecated"') for each in "aabaca"]
    async with faulty_server(*warns) as faulty, ApiServer(faulty.config(), on_warning=heard.append) as server:
        for _ in range(7):
            await server.call("GET", PODS)
    assert heard == [f"v1 {each} is deprecated" for each in "abca"]


async def test_impersonated_user_has_only_its_own_rights(api_server: RealServer) -> None:
    headers = (("Impersonate-User", "ann"), ("Impersonate-Group", "g1"), ("Impersonate-Group", "g2"))
    async with ApiServer(replace(api_server.config(), headers=headers)) as server:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        made = await server.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
        user = made["status"]["userInfo"]
        with pytest.raises(PermissionDenied, match='User "ann" cannot list'):
            await server.call("GET", PODS)
    assert (user["username"], user["groups"]) == ("ann", ["g1", "g2", "system:authenticated"])


async def test_tls_server_name_replaces_the_one_of_the_address(api_server: RealServer) -> None:

    async with ApiServer(replace(api_server.config(), server_name="localhost")) as server:
        await server.call("GET", "/api/v1/namespaces/default")
    error = await _error(replace(api_server.config(), server_name="other.example"))
    assert "set tls-server-name" in str(error)


# --- Requests -----------------------------------------------------------------


async def test_request_says_who_calls_and_asks_for_json() -> None:
    async with faulty_server(answer(body={})) as faulty:
        async with ApiServer(faulty.config(headers=(("Impersonate-User", "ann"),))) as server:
            await server.call("POST", PODS, params={"dryRun": "All", "force": True}, body={"a": "ä"})
        [seen] = faulty.seen
    assert (seen.method, seen.target) == ("POST", f"{PODS}?dryRun=All&force=true")
    assert json.loads(seen.body) == {"a": "ä"}
    wanted = {
        "authorization": f"Bearer {SECRET}",
        "user-agent": f"headway/{VERSION}",
        "impersonate-user": "ann",
        "accept": "application/json",
        "content-type": "application/json",
    }
    assert {name: seen.header(name) for name in wanted} == wanted


async def test_path_of_the_address_comes_before_that_of_the_call() -> None:
    async with faulty_server(answer(body={})) as faulty:
        config = faulty.config()

        async with ApiServer(replace(config, server=f"{config.server}/k8s/clusters/c-1")) as server:
            await server.call("GET", PODS)
        assert faulty.seen[0].target == f"/k8s/clusters/c-1{PODS}"


async def test_calls_share_a_connection() -> None:
    async with faulty_server(answer(body={})) as faulty, ApiServer(faulty.config()) as server:
        for _ in range(3):
            await server.call("GET", PODS)
        assert faulty.connections == 1


# --- Lost answers -------------------------------------------------------------


@pytest.mark.parametrize("fault", [cut, stall])
async def test_lost_write_is_interrupted_and_lost_read_is_unavailable(fault: Answer) -> None:
    async with faulty_server(fault) as faulty:
        read = await _error(faulty.config(), timeout=0.3)
        assert isinstance(read, Unavailable)
        write = await _error(faulty.config(), "PATCH", timeout=0.3)
        assert isinstance(write, Interrupted)
        assert len(faulty.seen) == 2, "a lost call is not repeated"


async def test_cut_within_a_large_body_leaves_a_write_open() -> None:
    async def reset(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    async with listening(reset) as port, ApiServer(ClusterConfig(f"http://127.0.0.1:{port}", "a test")) as server:
        with pytest.raises(Interrupted):
            await server.call("POST", PODS, body="x" * 2_000_000)


async def test_canceled_call_closes_its_connection() -> None:
    async with faulty_server(stall) as faulty, ApiServer(faulty.config()) as server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.call, "POST", PODS)
            await faulty.arrived.wait()
            nursery.cancel_scope.cancel()
        await faulty.closed.wait()


async def test_call_that_is_canceled_in_its_handshake_closes_its_connection() -> None:
    begun, closed = trio.Event(), trio.Event()

    async def silent(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)
        begun.set()
        while await stream.receive_some():
            pass
        closed.set()

    async with listening(silent) as port, ApiServer(ClusterConfig(f"https://127.0.0.1:{port}", "a test")) as server:
        gc.disable()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.call, "POST", PODS)
                await begun.wait()
                nursery.cancel_scope.cancel()
            with trio.fail_after(10):
                await closed.wait()
        finally:
            gc.enable()


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_server_errors_leave_a_write_open(status: int) -> None:
    page = answer(status, b"<html>bad gateway</html>", content_type="text/html", retry_after="1")
    async with faulty_server(page) as faulty:
        error = await _error(faulty.config(), "POST")
        assert isinstance(error, Interrupted)
        assert "bad gateway" in str(error)
        assert len(faulty.seen) == 1


async def test_refused_connection_and_unknown_name_had_no_effect() -> None:
    async with faulty_server(cut) as faulty:
        gone = faulty.config()
    for config, part in (
        (gone, "start the API server, or correct the address"),
        (ClusterConfig("https://no.such.invalid", "a test"), "the name of the server is unknown"),
    ):
        error = await _error(config, "POST")
        assert isinstance(error, Unavailable), error
        assert part in str(error)
        assert "(a test)" in str(error)


async def test_server_that_accepts_no_connection_in_time_had_no_effect() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await trio.sleep_forever()

    async with listening(silent) as port:
        error = await _error(ClusterConfig(f"https://127.0.0.1:{port}", "a test"), "POST", timeout=0.6)
    assert isinstance(error, Unavailable)
    assert "no connection could be made in time" in str(error)


async def test_leases_do_not_wait_for_calls_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "_MOST_CALLS", 1)
    async with (
        faulty_server(stall, answer(body={})) as faulty,
        ApiServer(faulty.config()) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(server.call, "POST", PODS)
        await faulty.arrived.wait()
        await server.call("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", body={})
        with trio.move_on_after(0.1) as scope:
            await server.call("POST", PODS)
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()


async def test_wait_for_other_calls_counts_as_time_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "_MOST_CALLS", 1)
    async with (
        faulty_server(stall) as faulty,
        ApiServer(faulty.config()) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(server.call, "POST", PODS)
        await faulty.arrived.wait()
        with pytest.raises(NotBegun, match=r"has waited 0\.1 seconds for other calls: 1 are under way to") as raised:
            await server.call("POST", PODS, timeout=0.1)
        assert code_of(raised.value) is Code.DEADLINE_EXCEEDED
        nursery.cancel_scope.cancel()


# --- Refusals that ask to wait ------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "refused",
    [
        answer(429, refusal(429, "TooManyRequests"), retry_after="1"),
        answer(429, b"slow down", content_type="text/plain", retry_after="1"),
        answer(503, refusal(503, "ServiceUnavailable", retryAfterSeconds=1)),
    ],
)
async def test_call_refused_for_now_is_repeated_after_the_time_asked_for(method: str, refused: Answer) -> None:
    async with faulty_server(refused, answer(body={"a": 1})) as faulty, ApiServer(faulty.config()) as server:
        began = trio.current_time()
        assert await server.call(method, PODS) == {"a": 1}
        assert trio.current_time() - began >= 1
        assert len(faulty.seen) == 2


async def test_read_is_repeated_after_any_503_with_a_time() -> None:
    refused = answer(503, b"busy", content_type="text/plain", retry_after="0")
    async with faulty_server(refused, answer(body={})) as faulty, ApiServer(faulty.config()) as server:
        await server.call("GET", PODS)


async def test_call_refused_for_longer_than_its_timeout_is_rate_limited() -> None:
    async with faulty_server(answer(429, refusal(429, retryAfterSeconds=10))) as faulty:
        error = await _error(faulty.config(), "POST", timeout=2)
        assert isinstance(error, RateLimited)
        assert error.retry_after == 10
        assert len(faulty.seen) == 1


async def test_cancellation_in_a_wait_shows_that_nothing_was_done() -> None:
    async with faulty_server(answer(429, refusal(429, retryAfterSeconds=10))) as faulty:
        async with ApiServer(faulty.config(), timeout=60) as server:
            with trio.move_on_after(1), pytest.raises(trio.Cancelled) as raised:
                await server.call("POST", PODS)
        assert ended_a_wait(raised.value)


async def test_watch_refused_for_now_is_opened_again() -> None:
    refused = answer(429, refusal(429, message="storage is (re)initializing", retryAfterSeconds=0), retry_after="0")
    async with faulty_server(refused, pieces(b"a\n")) as faulty, ApiServer(faulty.config()) as server:
        assert await _lines(server) == [b"a"]


# --- Watches ------------------------------------------------------------------


async def test_only_line_feeds_end_a_line() -> None:
    text = '{"a":"x\u0085y\u2028z\rw"}'.encode()
    sent = [text + b"\n" + text[:7], text[7:], b"\n", b"b\nc\n"]
    async with faulty_server(pieces(*sent)) as faulty, ApiServer(faulty.config()) as server:
        assert await _lines(server, resourceVersion=7) == [text, text, b"b", b"c"]
        assert faulty.seen[0].target == f"{PODS}?resourceVersion=7&watch=true"
        assert faulty.seen[0].header("accept-encoding") == "identity"


async def test_silent_watch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "SILENCE", 0.3)
    async with faulty_server(pieces(b"a\n", ending=stall)) as faulty, ApiServer(faulty.config()) as server:
        with pytest.raises(Unavailable, match=r"nothing has arrived for 0\.3 seconds"):
            await _lines(server)


def test_watch_waits_for_longer_than_the_interval_of_bookmarks() -> None:
    assert _http.SILENCE == 90


@pytest.mark.parametrize("sent", [[b"a\n"], [b"a\n", b"half"]])
async def test_cut_watch_fails_after_its_whole_lines(sent: list[bytes]) -> None:
    async with faulty_server(pieces(*sent, ending=cut)) as faulty, ApiServer(faulty.config()) as server:
        async with server.watch(PODS) as lines:
            assert await anext(lines) == b"a"
            with pytest.raises(Unavailable) as raised:
                await anext(lines)
        assert call_of(raised.value) is not None


async def test_watch_that_ends_within_a_line_fails() -> None:
    async with faulty_server(pieces(b"a\nhalf")) as faulty, ApiServer(faulty.config()) as server:
        with pytest.raises(Unavailable, match="within an event"):
            await _lines(server)


async def test_leaving_the_block_closes_the_connection() -> None:
    """Also of a watch whose lines are not all read, which leaves no generator for Python to end."""
    async with faulty_server(pieces(b"a\nb\n", b"c\n", ending=stall)) as faulty, ApiServer(faulty.config()) as server:
        assert await _lines(server, until=1) == [b"a"]
        await faulty.closed.wait()


async def test_error_of_the_block_stays_as_it_is() -> None:
    async with faulty_server(pieces(b"a\n", ending=stall)) as faulty, ApiServer(faulty.config()) as server:
        with pytest.raises(ZeroDivisionError):
            await _lines_then_fail(server)


async def test_refused_watch_raises_before_its_block() -> None:
    async with faulty_server(answer(410, refusal(410, "Expired"))) as faulty, ApiServer(faulty.config()) as server:
        with pytest.raises(HeadwayError) as raised:
            await _lines(server)
        assert code_of(raised.value) is Code.OUT_OF_RANGE


# --- Proxies and other servers ------------------------------------------------


async def test_proxy_of_the_configuration_is_used() -> None:
    asked: list[bytes] = []

    async def proxy(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        asked.append(head.split(b"\r\n")[0])
        target = head.split()[1].decode()
        host, _, port = target.partition(":")
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        async with await trio.open_tcp_stream(host, int(port)) as other, trio.open_nursery() as nursery:

            async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
                async for data in source:
                    await sink.send_all(data)
                nursery.cancel_scope.cancel()

            nursery.start_soon(copy, stream, other)
            nursery.start_soon(copy, other, stream)

    async with faulty_server(answer(body={})) as faulty, listening(proxy) as port:
        async with ApiServer(faulty.config(proxy=f"http://127.0.0.1:{port}")) as server:
            await server.call("GET", PODS)
        assert asked == [b"CONNECT " + faulty.url.removeprefix("https://").encode() + b" HTTP/1.1"]
        # The name in the certificate is also checked behind the proxy.
        faulty.tls = faulty.context(faulty.ca, "other.example")
        config = faulty.config(proxy=f"http://127.0.0.1:{port}", server_name="other.example")
        async with ApiServer(config) as server:
            await server.call("GET", PODS)
        assert "set tls-server-name" in str(await _error(replace(config, server_name="third.example")))


async def test_proxy_that_refuses_had_no_effect() -> None:
    async def proxy(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")

    async with faulty_server(answer(body={})) as faulty, listening(proxy) as port:
        config = faulty.config(proxy=f"http://user:{SECRET}@127.0.0.1:{port}")
        refused = await _error(config, "POST")
    gone = await _error(config, "POST")
    for error, part in ((refused, "403 Forbidden"), (gone, "failed")):
        assert isinstance(error, Unavailable)
        assert f"the proxy http://user:…@127.0.0.1:{port} has opened no connection (" in str(error)
        assert part in str(error)


@pytest.mark.parametrize(
    "other",
    [
        answer(200, b"<html>log in</html>", content_type="text/html"),
        answer(302, b"", location="https://login.example"),
        answer(404, b"<html>no</html>", content_type="text/html"),
    ],
)
async def test_server_that_is_no_api_server_is_named(other: Answer) -> None:
    async with faulty_server(other) as faulty:
        error = await _error(faulty.config())
    assert isinstance(error, NotHeadway)
    assert "is not an API server of Kubernetes" in str(error)
    assert "kubectl cluster-info" in str(error)


async def test_watch_of_a_web_page_fails_before_its_block() -> None:
    page = answer(200, b"<html>log in</html>", content_type="text/html")
    async with faulty_server(page) as faulty, ApiServer(faulty.config()) as server:
        with pytest.raises(NotHeadway, match="with a web page"):
            await _lines(server)


async def test_https_for_a_plain_server_is_explained() -> None:
    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(plain) as port:
        error = await _error(ClusterConfig(f"https://127.0.0.1:{port}", "a test"))
        assert "it does not speak TLS: write http://" in str(error)


async def test_http_for_a_real_server_is_explained(api_server: RealServer) -> None:
    error = await _error(ClusterConfig(api_server.url.replace("https", "http"), "a test"), "POST")
    assert "write https:// in the address" in str(error)


# --- Certificates -------------------------------------------------------------


async def test_certificate_of_another_authority_is_explained() -> None:
    async with faulty_server(answer(body={})) as faulty:
        other = Content("another CA", text=trustme.CA().cert_pem.bytes().decode())
        error = await _error(faulty.config(ca=other), "POST")
        assert isinstance(error, Unavailable)
        assert "set certificate-authority" in str(error)
        assert not faulty.seen


async def test_certificate_for_another_name_is_explained() -> None:
    async with faulty_server(answer(body={})) as faulty:
        faulty.tls = faulty.context(faulty.ca, "other.example")
        error = await _error(faulty.config())
        assert "set tls-server-name" in str(error)
        async with ApiServer(faulty.config(server_name="other.example")) as server:
            await server.call("GET", PODS)


async def test_refused_credentials_are_explained_and_tried_once() -> None:
    async with faulty_server(answer(401, refusal(401, "Unauthorized"))) as faulty:
        error = await _error(faulty.config())
        assert isinstance(error, Unauthenticated)
        assert "renew the token" in str(error)
        assert len(faulty.seen) == 1, "the same token would be refused again"
