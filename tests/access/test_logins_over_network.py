"""Logins over gRPC and HTTP: calls, watches, the page, workers, and what operators see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from grpclib.const import Status
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import wait_all_tasks_blocked

import headway
from headway.access import REFUSED, Access, Authorizer, Binding, Login, Policy, Rule
from headway.events import AuthenticationFailed, LoginRefused
from headway.observe import Metrics
from tests.access.logins import ALL, ISS, access, issuer
from tests.access.test_streams import TEAM, app, ended, watched
from tests.helpers.login_issuer import ED_KEY, claims, jwks, public_jwk, serving_issuer, signed
from tests.http.kit import NO_CERTIFICATES

HEADER = {"alg": "RS256", "kid": "a"}


class Hand:
    """A clock of an authorizer that a test turns."""

    def __init__(self) -> None:
        self.now = 2_000_000_000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """An engine that accepts logins over gRPC and HTTP, and what it reports."""

    def __init__(self, engine: headway.Engine, events: list[object], metrics: Metrics, http: httpx.AsyncClient) -> None:
        self.engine = engine
        self.events = events
        self.metrics = metrics
        self.http = http
        self.reported = trio.Event()

    def tell(self) -> None:
        """Wake every task that waits for a report."""
        self.reported.set()
        self.reported = trio.Event()

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(self.metrics.text().decode())
        samples = [each for family in families for each in family.samples if each.name == name]
        return {tuple(each.labels.values()): each.value for each in samples}


@asynccontextmanager
async def site(authorizer: Authorizer, *apps: headway.App) -> AsyncIterator[Site]:
    events: list[object] = []
    metrics = Metrics()

    sites: list[Site] = []

    def report(event: object) -> None:
        metrics(event)
        events.append(event)
        for each in sites:
            each.tell()

    network = headway.Network(["127.0.0.1:0"], http="127.0.0.1:0", access=authorizer)
    with trio.fail_after(30):
        async with (
            headway.open_engine("memory:", *(apps or (app,)), network=network, report=report) as engine,
            httpx.AsyncClient(base_url=f"http://{engine.http}", timeout=30, verify=NO_CERTIFICATES) as http,
        ):
            sites.append(Site(engine, events, metrics, http))
            yield sites[0]


def good(**changes: Any) -> str:
    return signed(HEADER, claims(ISS, **changes))


async def test_login_is_good_for_grpc_and_http() -> None:
    """Wherever a static token identifies a caller, a login does."""
    async with site(Authorizer(access())) as served:
        async with headway.connect(served.engine.addresses, app, token=good()) as client:
            await client.apply(TEAM.new("core"))
        for headers in ({"authorization": f"Bearer {good()}"}, {"x-consul-token": good()}):
            answer = await served.http.get("/api/staff/v1/team/core", headers=headers)
            assert answer.status_code == 200
        answer = await served.http.get("/api/staff/v1/team/core", headers={"authorization": f"Bearer {good(exp=1)}"})
        assert (answer.status_code, answer.json()["message"]) == (401, REFUSED)


@pytest.mark.parametrize("way", ["gRPC", "HTTP"])
async def test_first_login_waits_for_the_keys(way: str, tmp_path: Path) -> None:
    """A server that has just started answers its first caller once it knows the keys."""
    async with serving_issuer(tmp_path) as corp:
        corp.open = trio.Event()
        known = issuer(issuer=corp.url, authority=corp.authority)
        accepting = Authorizer(Access([Policy("operators", [ALL])], issuers=[known]))
        async with site(accepting) as served, trio.open_nursery() as nursery:

            async def call() -> None:
                if way == "HTTP":
                    headers = {"authorization": f"Bearer {corp.token()}"}
                    assert (await served.http.get("/api/staff/v1/team", headers=headers)).status_code == 200
                    return
                async with headway.connect(served.engine.addresses, app, token=corp.token()) as client:
                    await client.apply(TEAM.new("core"))

            nursery.start_soon(call)
            while not accepting.logins.waiting:
                await wait_all_tasks_blocked(0.01)
            corp.open.set()


async def test_login_signs_in_to_the_page() -> None:
    """The page shows the name of the login, and the session ends with it."""
    hand = Hand()
    async with site(Authorizer(access(), clock=hand)) as served:
        token = good(exp=hand.now + 60)
        signed_in = await served.http.post("/page/session", json={"token": token})
        assert signed_in.status_code == 204, signed_in.text
        session = (await served.http.get("/page/session")).json()
        assert (session["allowed"], session["caller"]) == (True, "login corp/ada")

        hand.now += 100
        session = (await served.http.get("/page/session")).json()
        assert (session["allowed"], session["message"]) == (False, REFUSED)


async def test_refusal_tells_the_operator_and_not_the_caller() -> None:
    """The log has the issuer and the reason, and the name of the caller if the signature was right."""
    async with site(Authorizer(access())) as served:
        answer = await served.http.get("/api/staff/v1/team/core", headers={"x-consul-token": good(exp=1)})
        assert (answer.status_code, answer.json()["message"]) == (401, REFUSED)

        (line,) = [event for event in served.events if isinstance(event, AuthenticationFailed)]
        assert (line.caller, line.why) == ("corp/ada", "corp: it has expired")
        assert LoginRefused("corp", "expired") in served.events
        assert served.counted("headway_logins_refused_total") == {("corp", "expired"): 1}


@pytest.mark.wide
async def test_flood_of_refusals_is_bounded_in_the_log_and_exact_in_the_metrics() -> None:
    """Every refusal has one text. The log has one line a second, and the metric counts each by issuer and reason."""
    refused = {
        ("corp", "expired"): good(exp=1),
        ("corp", "signature"): good()[:-8] + "AAAAAAAA",
        ("", "issuer"): signed(HEADER, claims("https://evil.example.com")),
        ("corp", "no_binding"): good(groups=[]),
    }
    async with site(Authorizer(access())) as served:
        for _ in range(5):
            for text in refused.values():
                answer = await served.http.get("/api/staff/v1/team/core", headers={"x-consul-token": text})
                assert (answer.status_code, answer.json()["message"]) == (401, REFUSED)
        # The rest of a burst is reported up to two seconds later.
        while sum(served.counted("headway_logins_refused_total").values()) < 20:
            await served.reported.wait()

        assert served.counted("headway_logins_refused_total") == dict.fromkeys(refused, 5.0)
        assert sum(served.counted("headway_authentication_failures_total").values()) == 20
        lines = [event for event in served.events if isinstance(event, AuthenticationFailed)]
        assert len(lines) < 10
        assert (lines[0].caller, lines[0].why) == ("corp/ada", "corp: it has expired")
        assert all(text not in str(vars(event)) for event in lines for text in refused.values())
        assert len([event for event in served.events if isinstance(event, LoginRefused)]) < 20


async def test_stream_ends_when_its_login_expires() -> None:
    """It outlives the token by the leeway at most, even if it is idle."""
    hand = Hand()
    hand.now = claims(ISS)["exp"] - 3600.0
    accepting = Authorizer(access(issuer(leeway=0)), clock=hand)
    async with watched(accepting, good(exp=hand.now + 0.3)) as (_, _, items):
        assert await ended(items) == (Status.UNAUTHENTICATED, REFUSED)


@pytest.mark.parametrize(
    ("after", "status"),
    [
        (access(issuer(audiences=["other"])), Status.UNAUTHENTICATED),
        pytest.param(access(issuer(algorithms=["ES256"])), Status.UNAUTHENTICATED, marks=pytest.mark.wide),
        (access(issuer(name="other")), Status.UNAVAILABLE),
        pytest.param(access(issuer(leeway=0)), Status.UNAVAILABLE, marks=pytest.mark.wide),
        pytest.param(
            access(issuer(issuer="https://other.example.com")), Status.UNAUTHENTICATED, marks=pytest.mark.wide
        ),
        (access(issuer(bindings=[Binding(claims={}, policies=["readers"])])), Status.UNAVAILABLE),
        pytest.param(access(keys=jwks(public_jwk(ED_KEY, kid="d"))), Status.UNAUTHENTICATED, marks=pytest.mark.wide),
        pytest.param(Access(), Status.UNAUTHENTICATED, marks=pytest.mark.wide),
    ],
    ids=[
        "audience",
        "algorithms",
        "another name",
        "leeway",
        "another issuer",
        "other policies",
        "other keys",
        "no issuers",
    ],
)
async def test_stream_ends_when_the_access_file_changes_its_login(after: Access, status: Status) -> None:
    """As for a static token: UNAVAILABLE if the caller has only to retry, UNAUTHENTICATED if the token is refused."""
    accepting = Authorizer(access())
    async with watched(accepting, good()) as (_, _, items):
        accepting.replace(access(issuer(), policies=("operators", "readers", "others")))
        accepting.replace(after)
        assert (await ended(items))[0] is status


@pytest.mark.wide
async def test_worker_runs_with_a_login() -> None:
    """Its leases, watches and writes have the policies of its claims."""
    counting = headway.App("counting")
    counting.registry.register(TEAM)
    done = trio.Event()

    @counting.controller(manages=TEAM)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        if rt.cache.get(TEAM, request.id) is not None:
            await rt.client.apply(TEAM.new("seen"))
            done.set()

    async with site(Authorizer(access())) as served:
        await served.engine.client.apply(TEAM.new("core"))
        async with headway.open_workers(served.engine.addresses, counting, process="web-1", token=good()):
            await done.wait()
        assert (await served.engine.client.read(TEAM, "seen")).name == "seen"


def test_login_notices_nothing_of_bindings_in_another_order() -> None:
    """It has the same policies, so its streams go on."""
    bindings = [Binding(claims={"groups": name}, policies=[name]) for name in ("ops", "admins")]
    accepting = Authorizer(access(issuer(bindings=bindings), policies=("ops", "admins")))
    identity = accepting.identify({"x-consul-token": good(groups=["ops", "admins"])})

    accepting.replace(access(issuer(bindings=bindings[::-1]), policies=("ops", "admins")))
    assert identity.is_current()
    accepting.replace(access(issuer(bindings=bindings[1:]), policies=("ops", "admins")))
    assert not identity.is_current()


def test_policies_of_all_matching_bindings_add_up() -> None:
    """A login has the policies of each binding that its claims match, once each."""
    operators = Policy("operators", [Rule(verbs=["edit"], type="*", partition="*", namespace="*")])
    readers = Policy("readers", [Rule(verbs=["view"], type="*", partition="*", namespace="*")])
    bindings = [
        Binding(claims={"groups": ["ops", "admins"]}, policies=["operators", "readers"]),
        Binding(claims={"/realm/roles": "viewer", "email_verified": True, "level": 3}, policies=["readers"]),
        Binding(claims={"scope": "edit"}, policies=["operators"]),
    ]
    known = issuer(bindings=bindings)

    def of(**given: object) -> tuple[str, ...]:
        return known.policies_of(given)

    assert Access([operators, readers], issuers=[known]).issuers == {"corp": known}
    assert of(groups=["x", "admins"]) == ("operators", "readers")
    assert of(realm={"roles": ["viewer"]}, email_verified=True, level=3, scope="view edit") == ("operators", "readers")
    assert of(realm={"roles": ["viewer"]}, email_verified="true", level=3) == ()
    assert of(realm={"roles": ["viewer"]}, email_verified=1, level=3) == ()
    assert of(realm={"roles": ["viewer"]}, email_verified=True, level=3.0) == ()
    assert of(scope="viewedit") == ()
    assert issuer(bindings=bindings[::-1]).policies_of({"groups": "ops", "scope": "edit"}) == ("operators", "readers")
    assert of(groups="ops") == ("operators", "readers")
    assert of(groups=json.loads("null")) == ()
    assert isinstance(Authorizer(access()).identify({"x-consul-token": good()}).token, Login)
