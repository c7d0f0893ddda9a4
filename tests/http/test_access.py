"""Access over HTTP: the tokens and rules of gRPC, and no way in by a browser's mistake."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import trio
from starlette.responses import Response

import headway
from headway.access import Access, Authorizer, Limit, Policy, Rule, new_token
from headway.errors import DeclarationError
from headway.events import AuthenticationFailed, CallDenied
from headway.http import Endpoint, Exchange, Offered, RequestLimits, Shares
from headway.resource import Registry
from headway.rpc import Services
from tests.http.kit import (
    ALL_TEAMS,
    CORE,
    TEAM,
    TEAMS,
    Answer,
    Api,
    allowing,
    asked,
    bearing,
    serving,
)


def rule(*verbs: str, type: str = "staff.v1.Team") -> Rule:
    return Rule(verbs=list(verbs), type=type, partition="*", namespace="*")


@pytest.mark.parametrize(
    ("verbs", "allowed"),
    [
        (["read"], {"GET"}),
        (["list", "read"], {"GET", "LIST"}),
        (["watch", "read"], {"GET", "WATCH"}),
        (["write"], {"PUT"}),
        (["write", "read"], {"GET", "PUT", "PATCH"}),
        (["write_status", "read"], {"GET", "STATUS"}),
        (["delete"], {"DELETE"}),
        (["*"], {"GET", "LIST", "WATCH", "PUT", "PATCH", "STATUS", "DELETE"}),
    ],
)
async def test_each_method_needs_its_verb(verbs: list[str], allowed: set[str]) -> None:
    """The others are 403, and change nothing."""
    access, texts, _ = allowing(caller=[rule(*verbs)])
    status = {"observedGeneration": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}
    async with serving(access) as api:
        requests = {
            "GET": ("GET", CORE, None),
            "LIST": ("GET", TEAMS, None),
            "WATCH": ("GET", f"{TEAMS}?watch", None),
            "PUT": ("PUT", CORE, {}),
            "PATCH": ("PATCH", CORE, {"data": {"note": "x"}}),
            "STATUS": ("PUT", f"{CORE}/status/mine", status),
            "DELETE": ("DELETE", CORE, None),
        }
        for name, (method, path, body) in requests.items():
            await api.client.apply(TEAM.new("core"))
            before = (await api.client.read(TEAM, "core")).version
            async with api.http.stream(method, path, json=body, headers=bearing(texts["caller"])) as answer:
                assert (answer.status_code < 300) is (name in allowed), (name, answer.status_code)
                if name not in allowed:
                    assert answer.status_code == 403, name
                    assert (await api.client.read(TEAM, "core")).version == before


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer hw_0000000000000000_" + "0" * 64},
        {"authorization": "Bearer"},
        {"authorization": "Basic YTpi"},
        {"x-consul-token": "x"},
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
    ],
)
async def test_invalid_token_is_refused_before_everything_else(headers: dict[str, str]) -> None:
    """Even an anonymous policy doesn't help it, and its body is not read."""
    access, _, _ = allowing(anonymous=[ALL_TEAMS])
    async with serving(access) as api:
        requests = [("GET", CORE), ("PUT", CORE), ("PATCH", CORE), ("DELETE", CORE), ("PUT", f"{CORE}/status/a")]
        requests += [("GET", TEAMS), ("GET", f"{TEAMS}?watch"), ("GET", "/api/other/v1/type/a")]
        for method, path in [*requests, ("GET", "/api/openapi.json")]:
            body = b"not JSON" if method in ("PUT", "PATCH") else None
            answer = await api.http.request(method, path, headers=headers, content=body)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), (method, path)
            assert answer.json()["code"] == "UNAUTHENTICATED"


async def test_consuls_header_carries_a_token_too() -> None:
    access, texts, _ = allowing(reader=[rule("read")])
    async with serving(access) as api:
        await api.client.apply(TEAM.new("core"))
        for headers in ({}, {"x-consul-token": ""}):
            answer = await api.http.get(CORE, headers=headers)
            assert (answer.status_code, answer.json()["message"].endswith(": no token was sent")) == (403, True)
        assert (await api.http.get(CORE, headers={"x-consul-token": texts["reader"]})).status_code == 200
        denied = await api.http.delete(CORE, headers={"x-consul-token": texts["reader"]})
        assert (denied.status_code, "no token" in denied.text) == (403, False)


async def test_two_tokens_are_refused() -> None:
    """A proxy and the server could otherwise take a request for that of two callers."""
    access, texts, _ = allowing(first=[rule("*")], second=[rule("*")])
    both = [("authorization", f"Bearer {texts[name]}") for name in ("first", "second")]
    async with serving(access) as api:
        for headers in (both, both[::-1], [both[0], both[0]]):
            answer = await api.http.get(TEAMS, headers=headers)
            assert (answer.status_code, "authorization has 2 values: send it once" in answer.json()["message"]) == (
                401,
                True,
            )
        answer = await api.http.get(TEAMS, headers={**bearing(texts["first"]), "x-consul-token": texts["second"]})
        assert (answer.status_code, "different tokens" in answer.json()["message"]) == (401, True)


@pytest.mark.parametrize(
    ("method", "path", "called"),
    [
        ("GET", f"{CORE}?uid=a", f"GET {CORE}"),
        ("DELETE", CORE, f"DELETE {CORE}"),
        ("GET", f"{TEAMS}?watch", f"GET {TEAMS}"),
        ("GET", "/api/no/v1/such", "GET /api/no/v1/such"),
        ("GET", "/api/no/v1/%E2%80%AE", "GET /api/no/v1/%E2%80%AE"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
async def test_report_of_a_denied_request_names_what_was_called(
    method: str, path: str, called: str, *, known: bool
) -> None:
    """And not the method of the service that the request was denied at."""
    access, texts, _ = allowing(caller=[rule("read", type="vault.v1.Secret")])
    reported: list[Any] = []
    async with serving(access, report=reported.append) as api:
        headers = bearing(texts["caller"] if known else "hw_0000000000000000_" + "0" * 64)
        assert (await api.http.request(method, path, headers=headers)).status_code == (403 if known else 401)
    (event,) = reported
    assert isinstance(event, CallDenied if known else AuthenticationFailed)
    assert event.path == called


@pytest.mark.parametrize("path", [f"{TEAMS}/%s", f"{CORE}/status/%s"])
@pytest.mark.parametrize("known", [False, True])
async def test_report_of_a_denied_request_has_no_token_of_its_path(path: str, *, known: bool) -> None:
    """The caller has written its token into the path by mistake."""
    access, texts, _ = allowing(caller=[rule("read", type="vault.v1.Secret")])
    token = texts["caller"]
    reported: list[Any] = []
    async with serving(access, report=reported.append) as api:
        headers = bearing(token) if known else {}
        assert (await api.http.put(path % token, headers=headers, json={})).status_code == 403
    (event,) = reported
    assert isinstance(event, CallDenied)
    assert "hw_…" in event.path
    assert token.rpartition("_")[2] not in str(vars(event))


@pytest.mark.parametrize("suffix", ["", "/key", "?watch"])
async def test_caller_without_a_right_does_not_learn_which_types_exist(suffix: str) -> None:
    """A registered type and an unregistered one get the same answer, except for the name."""
    access, texts, _ = allowing(caller=[rule("*")])
    async with serving(access) as api:
        answers = []
        for kind in ("secret", "nosuch"):
            answer = await api.http.get(f"/api/vault/v1/{kind}{suffix}", headers=bearing(texts["caller"]))
            answers.append((answer.status_code, answer.text.replace(kind, "KIND"), {*answer.headers}))
        assert answers[0] == answers[1]
        assert answers[0][0] == 403


async def test_document_has_only_the_types_that_the_caller_may_know() -> None:
    access, texts, _ = allowing(caller=[rule("read")])
    async with serving(access) as api:
        document = (await api.http.get("/api/openapi.json", headers=bearing(texts["caller"]))).json()
    assert {path.split("/")[4] for path in document["paths"]} == {"team"}
    # They may not write it, so the example could not be checked.
    put = document["paths"][f"{TEAMS}/{{name}}"]["put"]
    assert "example" not in put["requestBody"]["content"]["application/json"]


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost", 200),
        ("localhost:8080", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:1", 200),
        ("127.9.9.9", 200),
        ("[::1]:8080", 200),
        ("[::1]", 200),
        ("evil.example.com", 403),
        ("evil.example.com:8080", 403),
        ("localhost.evil.example.com", 403),
        ("127.0.0.1.nip.io", 403),
        ("10.0.0.1", 403),
        ("", 403),
        ("localhost:evil", 403),
    ],
)
async def test_open_server_answers_only_to_names_of_this_machine(host: str, code: int) -> None:
    """A page on another site could otherwise point its own name here (DNS rebinding)."""
    async with serving() as api:
        for path in ("/api/openapi.json", TEAMS, f"{TEAMS}?watch"):
            async with api.http.stream("GET", path, headers={"host": host}) as answer:
                assert answer.status_code == code
    access, _, _ = allowing(anonymous=[ALL_TEAMS])
    async with serving(access) as api:
        # A token, or the rule for everyone, decides here.
        assert (await api.http.get(TEAMS, headers={"host": host})).status_code == 200


async def test_browser_of_another_site_is_not_allowed_anything() -> None:
    """There is no header of CORS, so that its page can read nothing, and its preflight fails."""
    origin = {"origin": "https://evil.example.com"}
    asked = {**origin, "access-control-request-method": "PUT", "access-control-request-headers": "content-type"}
    async with serving() as api:
        for method, headers in (("GET", origin), ("OPTIONS", asked), ("PUT", origin)):
            answer = await api.http.request(method, CORE, headers=headers)
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert answer.status_code >= 400


async def test_watch_ends_when_its_token_is_revoked() -> None:
    """It ends at once, although nothing happens in the store, and a new one is refused."""
    access, texts, _ = allowing(caller=[rule("view")])
    async with serving(access) as api:
        with trio.fail_after(30):
            headers = bearing(texts["caller"])
            async with asked(api.address, f"{TEAMS}?watch", headers) as answer:
                assert "snapshot" in (await answer.line() or "")
                assert "endOfSnapshot" in (await answer.line() or "")
                access.replace(Access())
                last = await answer.line() or ""
                assert '"type":"failed"' in last
                assert '"status":401' in last
                assert await answer.line() is None
            assert (await api.http.get(f"{TEAMS}?watch", headers=headers)).status_code == 401


async def open_watches(stack: AsyncExitStack, api: Api, texts: Mapping[str, str], *names: str) -> list[Answer]:
    """Open a watch for each of these callers, one after the other."""
    return [
        await stack.enter_async_context(asked(api.address, f"{TEAMS}?watch", bearing(texts[name]))) for name in names
    ]


async def test_watches_of_one_caller_are_limited() -> None:
    """Another caller still gets one, up to the limit of all."""
    access, texts, _ = allowing(first=[rule("view")], second=[rule("view")], third=[rule("view")])
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(30))
        api = await stack.enter_async_context(serving(access, RequestLimits(caller_watches=2, watches=4)))
        answers = await open_watches(stack, api, texts, "first", "first", "first", "second", "second", "third")
        assert [each.code for each in answers] == [200, 200, 429, 200, 200, 200]
        assert "you have 2 watches open" in await answers[2].text()
        (last,) = await open_watches(stack, api, texts, "third")
        assert last.code == 429
        assert "this server has 4 watches open: try again" in await last.text()


async def test_caller_with_most_watches_gives_way_to_one_with_fewer() -> None:
    access, texts, _ = allowing(first=[rule("view")], second=[rule("view")], third=[rule("view")])
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(30))
        api = await stack.enter_async_context(serving(access, RequestLimits(caller_watches=3, watches=3)))
        answers = await open_watches(stack, api, texts, "first", "first", "first", "second")
        assert [each.code for each in answers] == [200] * 4
        assert "this server has 3 watches open, most of them by you" in await answers[2].text()
        refused = await open_watches(stack, api, texts, "first", "second")
        assert [each.code for each in refused] == [429, 429]
        (third,) = await open_watches(stack, api, texts, "third")
        assert third.code == 200
        assert "most of them by you" in await answers[1].text()


async def test_watch_without_rights_takes_no_place() -> None:
    access, texts, _ = allowing(writer=[rule("write")])
    async with serving(access, RequestLimits(caller_watches=1)) as api:
        for _ in range(3):
            assert (await api.http.get(f"{TEAMS}?watch", headers=bearing(texts["writer"]))).status_code == 403


APP = headway.App("http-access")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"http": "127.0.0.1:0"}, "needs either access="),
        ({"http": "0.0.0.0:0", "insecure": True}, "others can reach this address"),
        ({"http": "example.com:0", "insecure": True}, "others can reach this address"),
        ({"http": "8080", "insecure": True}, "is not a valid address for HTTP"),
        ({"http": 8080, "insecure": True}, "must be an address"),
    ],
)
async def test_engine_is_never_open_by_mistake(arguments: dict[str, object], says: str) -> None:
    """Without access control, it serves loopback addresses only, and only if the program says so."""
    with pytest.raises(DeclarationError, match=says):
        async with headway.open_engine("memory:", APP, network=headway.Network(**arguments)):  # type: ignore[arg-type]  # wrong
            pytest.fail("the engine listens")


async def test_engine_with_access_serves_every_address() -> None:
    async with headway.open_engine(
        "memory:", APP, network=headway.Network(http="0.0.0.0:0", access=Authorizer(Access()))
    ) as engine:
        assert engine.http is not None
        assert engine.addresses == []


async def test_token_that_is_revoked_between_two_checks_is_refused() -> None:
    """The guard has identified the caller already, and the count of bodies asks again: 401, and no failure (500)."""
    access, tokens, _ = allowing(all=[ALL_TEAMS])
    failures = list[tuple[str, BaseException]]()
    offered = Offered(Services(), Registry(), access, lambda *failed: failures.append(failed))
    shares = Shares(offered.limits)

    async def revoked(exchange: Exchange) -> Response:
        assert not exchange.account.startswith("host ")
        access.replace(Access())
        async with exchange.body() as body:
            return Response(body.text)

    app = Endpoint(lambda request: Exchange(offered, shares, request), {"PUT": revoked})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        answer = await http.put("/", content=b"{}", headers=bearing(tokens["all"]))
    assert (answer.status_code, answer.json()["code"], failures) == (401, "UNAUTHENTICATED", [])


async def test_n7_limited_request_is_429_with_the_time_after_which_to_repeat_it() -> None:
    """Nothing is done, whatever the request: a write or the opening of a watch."""
    limit = Limit(name="some", categories=["write", "watch"], per=["caller"], per_second=0.01, burst=1)
    text, token = new_token(["all"])
    access = Authorizer(Access([Policy("all", [ALL_TEAMS])], [token], limits=[limit]))
    async with serving(access) as api:
        first = await api.http.put(CORE, json={"data": {"note": "a"}}, headers=bearing(text))
        assert first.status_code in (200, 201)
        for refused in (
            await api.http.put(CORE, json={"data": {"note": "b"}}, headers=bearing(text)),
            await api.http.delete(CORE, headers=bearing(text)),
            await api.http.get(f"{TEAMS}?watch=true", headers=bearing(text)),
        ):
            assert refused.status_code == 429
            assert 90 <= int(refused.headers["retry-after"]) <= 100
            body = refused.json()
            assert (body["code"], body["reason"]) == ("RESOURCE_EXHAUSTED", "LIMITED")
            assert "limit some allows 0.01 write/watch calls a second" in body["message"]
        assert (await api.http.get(CORE, headers=bearing(text))).json()["data"]["note"] == "a"
