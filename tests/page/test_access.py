"""Access to the page: sessions in place of tokens, the rights of gRPC, and what browsers may be made to do."""

from __future__ import annotations

import httpx
import pytest
import trio

from headway.page import _host
from headway.resource import NAMESPACE
from headway.rpc import Limits
from tests.page import shop
from tests.page.kit import EVERYTHING, open_shop, revoke_all, rule
from tests.rpc.raw_kit import tcp

QUESTIONS = (
    "/page/live",
    "/page/search?type=shop.v1.Order",
    "/page/events",
    "/page/leases",
    "/page/quotas",
    "/page/resource?type=shop.v1.Order&name=a",
    "/page/relatives?type=shop.v1.Order&name=a",
)


async def test_token_becomes_a_cookie_that_no_script_and_no_other_site_can_use() -> None:
    """The cookie is HttpOnly and SameSite=Strict, is not the token, and the files of the page need neither."""
    async with open_shop(rules={"all": [EVERYTHING]}) as running, running.visitor() as visitor:
        assert (await visitor.http.get("/")).status_code == 200
        for path in QUESTIONS:
            assert (await visitor.http.get(path)).status_code in (401, 403), path
        await visitor.learn()
        assert (visitor.session["allowed"], "csrf" in visitor.session) == (False, False)
        answer = await visitor.sign_in(running.tokens["all"])
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        assert running.tokens["all"] not in cookie
        assert visitor.session["signedIn"] is True
        assert visitor.session["caller"].startswith("token ")
        # The JSON API takes no cookies.
        assert (await visitor.http.get("/api/shop/v1/order")).status_code == 403


async def test_unknown_cookie_and_invalid_token_open_nothing() -> None:
    """An unknown cookie is refused, and so is a token in its place."""
    async with open_shop(rules={"all": [EVERYTHING]}) as running, running.visitor() as visitor:
        assert (await visitor.sign_in("hw_0000000000000000_" + "0" * 64)).status_code == 401
        port = running.address.rpartition(":")[2]
        for text in ("x", running.tokens["all"], "'; --", "a" * 3000):
            visitor.http.cookies.set(f"headway-{port}", text)
            for path in QUESTIONS:
                assert (await visitor.http.get(path)).status_code in (401, 403), (path, text)
        # A token in a header is for the API.
        bearing = {"authorization": f"Bearer {running.tokens['all']}"}
        assert (await visitor.http.get("/page/session", headers=bearing)).json()["allowed"] is False


@pytest.mark.parametrize(
    "ended",
    [
        "signed out",
        pytest.param("revoked", marks=pytest.mark.wide),
        pytest.param("too many sessions", marks=pytest.mark.wide),
    ],
)
async def test_streams_end_with_their_session(ended: str) -> None:
    """Signing out, a revoked token, and the 17th session of one token end what is open."""
    async with open_shop(rules={"all": [EVERYTHING]}) as running, running.visitor("all") as visitor:
        async with (
            visitor.events("/page/live") as live,
            visitor.events("/page/resource?type=shop.v1.Order&name=a") as resource,
        ):
            await live.next("state")
            await resource.next("resource")
            if ended == "signed out":
                assert (await visitor.http.delete("/page/session")).status_code == 204
            elif ended == "revoked":
                assert running.access is not None
                revoke_all(running.access)
            else:
                async with running.visitor() as other:
                    for _ in range(16):
                        other.http.cookies.clear()
                        assert (await other.sign_in(running.tokens["all"])).status_code == 204
            for stream in (live, resource):
                error = await stream.ends()
                assert error is not None
                assert (error["status"], error["code"]) == (401, "UNAUTHENTICATED")
        await visitor.learn()
        assert visitor.session["allowed"] is False


async def test_overview_shows_what_its_caller_may_observe_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controllers of other types, their failures, the numbers of types and the arrows to them are left out."""
    monkeypatch.setattr(_host, "TICK", 0.05)
    rules = {
        "orders": [rule("observe", "view")],
        "knows": [rule("view"), rule("observe", namespace="sales")],
        "all": [EVERYTHING],
    }
    async with open_shop(rules=rules) as running:
        await running.client.apply(shop.ORDER.new("lost", shop.Order(items=["tea"])))
        await running.client.apply(shop.DEPOT.new("north"))
        async with running.visitor("orders") as visitor, visitor.events("/page/live") as live:
            graph = await live.next("graph")
            assert [box["name"] for box in graph["boxes"]] == ["shop.v1.Order", "shop/billing"]
            assert [(arrow["source"], arrow["target"]) for arrow in graph["arrows"]] == [
                ("shop.v1.Order", "shop/billing")
            ]
            for point in await live.next("points"):
                assert set(point["of"]) <= {"shop/billing"}
            state = await live.until(lambda event: event.get("failing"))
            assert [each["resource"]["name"] for each in state["failing"]] == ["lost"]
        async with running.visitor("orders") as visitor, visitor.events("/page/live") as live:
            state = await live.next("state")
            assert [each["name"] for each in state["controllers"]] == ["shop/billing"]
            assert {each["type"] for each in state["types"]} == {"shop.v1.Order"}
        async with running.visitor("all") as visitor, visitor.events("/page/live") as live:
            names = {each["name"] for each in (await live.next("state"))["controllers"]}
            assert {"shop/billing", "shop/shipping", "shop/depots", "headway/reaper"} <= names
        async with running.visitor("knows") as visitor, visitor.events("/page/live") as refused:
            assert refused.code == 403


async def test_search_and_resource_show_what_their_caller_may_read() -> None:
    """A scope that may not be listed is refused as over gRPC, and unreadable names appear nowhere."""
    rules = {
        "sales": [rule("view", "observe", namespace="sales")],
        "observer": [rule("observe")],
        "partial": [rule("list"), rule("read", name_prefix="sales-1")],
    }
    async with open_shop(rules=rules) as running:
        for namespace in ("sales", "secret"):
            await running.client.apply(NAMESPACE.new(namespace))
            for number in range(3):
                order = shop.ORDER.new(f"{namespace}-{number}", shop.Order(customer="ada"), namespace=namespace)
                await running.client.apply(order)
        async with running.visitor("sales") as visitor:
            found = await visitor.http.get("/page/search?type=shop.v1.Order&partition=default&namespace=sales&rows=2")
            assert [each["name"] for each in found.json()["rows"]] == ["sales-0", "sales-1"]
            # The number of resources that the caller may not see stays unknown.
            assert "examined" not in found.json()
            within = "type=shop.v1.Order&partition=default&namespace=sales"
            on = f"/page/search?{within}&rows=2&cursor={found.json()['cursor']}"
            assert [each["name"] for each in (await visitor.http.get(on)).json()["rows"]] == ["sales-2"]
            # A place belongs to one search.
            assert (await visitor.http.get(on.replace("namespace=sales", "namespace=secret"))).status_code == 403
            assert (await visitor.http.get(on + "&q=s")).status_code == 400
            for namespace in ("*", "secret"):
                refused = await visitor.http.get(f"/page/search?type=shop.v1.Order&namespace={namespace}")
                assert refused.status_code == 403
                assert "secret-" not in refused.text
            assert (await visitor.http.get("/page/search?type=shop.v1.Depot")).status_code == 403
            assert (await visitor.http.get("/page/search?type=shop.v1.Nothing")).status_code == 403
            async with visitor.events("/page/resource?type=shop.v1.Order&namespace=secret&name=secret-1") as refused_:
                assert refused_.code == 403
        async with running.visitor("partial") as visitor:
            found = await visitor.http.get("/page/search?type=shop.v1.Order")
            assert [each["name"] for each in found.json()["rows"]] == ["sales-1"]
        async with (
            running.visitor("observer") as visitor,
            visitor.events("/page/resource?type=shop.v1.Order&namespace=secret&name=secret-1") as seen,
        ):
            about = await seen.next("resource")
            assert (about["mayRead"], about["resource"]) == (False, None)
            assert about["why"]["states"][0]["controller"] == "shop/billing"
            assert (
                await visitor.http.get("/page/relatives?type=shop.v1.Order&namespace=secret&name=secret-1")
            ).status_code == 403


async def test_other_names_for_this_machine_are_refused() -> None:
    """DNS rebinding: without access control, a site that points its own name here gets nothing, not even the page."""
    async with open_shop(writes=True) as running, running.visitor() as visitor:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", ""):
            for path in ("/", "/assets/main.js", "/page/session", *QUESTIONS):
                answer = await visitor.http.get(path, headers={"host": host})
                assert answer.status_code == 403, (host, path)
                assert "shop" not in answer.text
            answer = await visitor.change("POST", "/page/pause", {"controller": "shop/billing"}, host=host)
            assert answer.status_code == 403


FORGED = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
    {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
    # Only the browser says that its page has another scheme than the server, and no header of a proxy does.
    {"origin": "https://staff.example", "host": "staff.example"},
    {"origin": "https://staff.example", "host": "staff.example", "x-forwarded-proto": "https"},
    {"origin": "https://staff.example", "host": "staff.example", "sec-fetch-site": "same-site"},
    {"origin": "https://staff.example:444", "host": "staff.example", "sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"x-headway-csrf": ""},
    {"x-headway-csrf": "guessed"},
    {"x-headway-csrf": "\xff"},
)
"""The headers that tell a request of another site from one of the page."""


@pytest.mark.parametrize("controlled", [False, True])
async def test_changes_come_from_the_page_itself_only(controlled: bool) -> None:
    """A form or script of another site, even on another port of this machine, changes nothing (CSRF)."""
    async with (
        open_shop(writes=True, rules={"all": [EVERYTHING]} if controlled else None) as running,
        running.visitor("all" if controlled else "") as visitor,
    ):
        await running.client.apply(shop.ORDER.new("a", shop.Order(customer="ada")))
        for forged in FORGED:
            for method, path, body in (
                ("POST", "/page/pause", {"controller": "shop/billing"}),
                ("POST", "/page/resume", {"controller": "shop/billing"}),
                ("POST", "/page/retry", {"controller": "shop/billing", "type": "shop.v1.Order", "name": "a"}),
                ("PUT", "/page/api/shop/v1/order/b", {"data": {}}),
                ("PATCH", "/page/api/shop/v1/order/a", {"data": {"customer": "eve"}}),
                ("DELETE", "/page/api/shop/v1/order/a", None),
            ):
                answer = await visitor.change(method, path, body, **forged)
                assert answer.status_code == 403, (forged, method, path, answer.text)
            if controlled and "x-headway-csrf" not in forged:
                # To sign a visitor in under another name is such a change, too.
                token = {"token": running.tokens["all"]}
                assert (await visitor.http.post("/page/session", json=token, headers=forged)).status_code == 403
                assert (await visitor.http.delete("/page/session", headers=forged)).status_code == 403
        await visitor.learn()
        assert visitor.session["allowed"] is True
        assert (await running.client.read(shop.ORDER, "a")).data.customer == "ada"
        assert await running.client.get(shop.ORDER, "b") is None
        assert running.engine.controllers["billing"].status().paused is None


@pytest.mark.parametrize("host", ["staff.example", "staff.example:443", "Staff.example:8443"])
async def test_page_works_behind_a_proxy_that_ends_tls(host: str) -> None:
    """The browser's origin has https then, and the server's own address http."""
    rules = {"all": [EVERYTHING]}
    async with open_shop(writes=True, rules=rules) as running, running.visitor() as visitor:
        origin = f"https://{host.removesuffix(':443').lower()}"
        headers = {"host": host, "origin": origin, "sec-fetch-site": "same-origin"}
        visitor.http.headers.update(headers)
        assert (await visitor.sign_in(running.tokens["all"])).status_code == 204
        # httpx keeps the cookie for the name in the URL.
        answer = await visitor.change("PUT", "/page/api/shop/v1/order/b", {"data": {"customer": "ada"}})
        assert answer.status_code == 200, answer.text
        assert (await visitor.http.delete("/page/session")).status_code == 204


async def test_stranger_cannot_make_the_server_parse_much() -> None:
    """The body of a sign-in, and of any change that is parsed before rights are checked, is as short as a head."""
    rules = {"all": [EVERYTHING], "anonymous": [rule("view")]}
    async with open_shop(writes=True, rules=rules) as running, running.visitor() as visitor:
        await visitor.learn()
        for spaces, code in ((15 << 10, 401), (17 << 10, 413)):
            body = '{"token": "hw_x"' + " " * spaces + "}"
            json = {"content-type": "application/json", "connection": "close"}
            assert (await visitor.http.post("/page/session", content=body, headers=json)).status_code == code
        answer = await visitor.http.post("/page/session", json={"token": [1] * 40})
        assert answer.status_code == 413
        for path in ("/page/pause", "/page/resume", "/page/retry"):
            answer = await visitor.change("POST", path, {"controller": "shop/billing", "more": " " * (17 << 10)})
            assert answer.status_code == 413, path


async def test_stranger_has_little_time_for_a_small_body() -> None:
    """A sign-in that does not arrive ends after the time of a handshake, not after that of a request."""
    limits = Limits(handshake_timeout=0.3)
    async with open_shop(rules={"all": [EVERYTHING]}, limits=limits) as running, tcp(running.address) as stream:
        head = f"POST /page/session HTTP/1.1\r\nHost: {running.address}\r\nContent-Type: application/json\r\n"
        await stream.send_all(f"{head}Content-Length: 9\r\n\r\n{{".encode())
        # The time of a request is a minute.
        with trio.fail_after(30):
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 408")


async def test_page_answers_with_a_strict_policy() -> None:
    """Nothing but its own files may run or be loaded, no page may frame it, and no other site may read it."""
    async with open_shop() as running, running.visitor() as visitor:
        for path in ("/", "/assets/main.js", "/assets/page.css", "/assets/icon.svg"):
            answer = await visitor.http.get(path, headers={"origin": "https://evil.example"})
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert not [name for name in answer.headers if name.startswith("access-control")]
        page = (await visitor.http.get("/")).text
        assert "<style" not in page
        assert " style=" not in page
        assert page.count("<script") == 1
        assert "http://" not in page + "".join(
            [(await visitor.http.get(f"/assets/{n}.js")).text for n in ("main", "live")]
        )
        same = await visitor.http.get("/", headers={"if-none-match": (await visitor.http.get("/")).headers["etag"]})
        assert same.status_code == 304


async def test_streams_heads_and_bodies_of_one_caller_are_bounded() -> None:
    """The 33rd stream is refused until one ends, and neither a long head nor a long body is read."""
    async with open_shop(writes=True) as running, running.visitor() as visitor:
        async with trio.open_nursery() as nursery:
            ready, full = [], trio.Event()

            async def hold() -> None:
                async with visitor.events("/page/live") as live:
                    await live.next("graph")
                    ready.append(live)
                    if len(ready) == 32:
                        full.set()
                    await trio.sleep_forever()

            for _ in range(32):
                nursery.start_soon(hold)
            with trio.fail_after(60):
                await full.wait()
            for path in ("/page/live", "/page/resource?type=shop.v1.Order&name=a"):
                async with visitor.events(path) as refused:
                    assert refused.code == 429
            nursery.cancel_scope.cancel()
        with trio.fail_after(60):
            while True:
                async with visitor.events("/page/live") as again:
                    if again.code == 200:
                        break
        long = await visitor.http.get("/page/session", headers={"x-long": "a" * 20_000})
        assert long.status_code == 431
        with pytest.raises(httpx.HTTPError):  # noqa: PT012  # the server may close the connection before it is read
            answer = await visitor.change("PUT", "/page/api/shop/v1/order/a", {"data": {"customer": "a" * (5 << 20)}})
            assert answer.status_code == 413
            raise httpx.HTTPError("refused")
        deep = '{"token":' + "[" * 5000 + "]" * 5000 + "}"
        answer = await visitor.http.post("/page/session", content=deep, headers={"content-type": "application/json"})
        assert answer.status_code == 400


async def test_nothing_is_changed_without_leave() -> None:
    """Without `http_writes`, every change is refused, whatever its caller may do elsewhere."""
    async with open_shop() as running, running.visitor() as visitor:
        assert visitor.session["writes"] is False
        for method, path in (("POST", "/page/pause"), ("PUT", "/page/api/shop/v1/order/a"), ("POST", "/page/retry")):
            answer = await visitor.change(method, path, {"controller": "shop/billing"})
            assert answer.status_code == 403
            assert "--http-writes" in answer.text
        assert await running.client.get(shop.ORDER, "a") is None
