"""Audit events: failed authentication, denied calls, and changes of a caller's rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway.access import Access, Audit, Authorizer, Guarded, Policy, Rule, Token, new_token
from headway.client import Client
from headway.events import AccessChanged, AuthenticationFailed, CallDenied
from headway.observe import Metrics
from headway.rpc import InProcessChannel, ServerReflectionRequest, open_channel
from headway.service import ResourceService
from headway.storage import MemoryBackend
from tests.helpers.plain_types import Team

AUDITED = AuthenticationFailed | CallDenied | AccessChanged


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
OTHER = app.type("staff", "v1", "Other", Team)


def rule(*verbs: str, partition: str = "default", namespace: str = "default", type: str = "staff.v1.Team") -> Rule:
    return Rule(verbs=verbs, type=type, partition=partition, namespace=namespace)


class Server:
    """An engine that listens, with one token, and the caller events that it has reported."""

    def __init__(self, *rules: Rule, description: str = "the deploy job") -> None:
        self.text, self.token = new_token(["some"], description=description)
        self.access = Authorizer(Access([Policy("some", rules)], [self.token]))
        self.events: list[object] = []
        self.metrics = Metrics()
        self.caller = f"{self.token.accessor} ({description})"

    def report(self, event: object) -> None:
        self.metrics(event)
        if isinstance(event, AUDITED):
            self.events.append(event)

    @asynccontextmanager
    async def client(self, token: str) -> AsyncIterator[headway.Client]:
        async with (
            headway.open_engine(
                "memory:", app, network=headway.Network(["127.0.0.1:0"], access=self.access), report=self.report
            ) as engine,
            headway.connect(engine.addresses, app, token=token) as client,
        ):
            yield client

    def counted(self, name: str) -> dict[str, float]:
        samples = [
            each
            for family in text_string_to_metric_families(self.metrics.text().decode())
            for each in family.samples
            if each.name == f"headway_{name}_total"
        ]
        return {",".join(each.labels.values()): each.value for each in samples}


def changed(token: Token, **fields: object) -> Token:
    kept = {name: getattr(token, name) for name in ("accessor", "hash", "policies", "description")}
    return Token(**{**kept, **fields})


async def test_failed_authentication_reports_the_token_and_the_reason_but_never_its_text() -> None:
    """The token is expired, revoked, misspelled or unknown. The caller does not learn which of these is the reason."""
    unknown = new_token([])[0]
    for text_of, token_of, caller, why in (
        (lambda text: text, lambda token: changed(token, expires_at=1.0), "named", "it has expired"),
        (lambda text: text, lambda token: changed(token, revoked=True), "named", "it is revoked"),
        # A random secret may well end with "00" itself.
        (
            lambda text: text[:-2] + ("11" if text.endswith("00") else "00"),
            lambda token: token,
            "named",
            "its secret is wrong",
        ),
        (lambda _: unknown, lambda token: token, "unknown", "token not found"),
    ):
        server = Server(rule("*"))
        server.access.replace(Access([Policy("some", [rule("*")])], [token_of(server.token)]))
        async with server.client(text_of(server.text)) as client:
            with pytest.raises(headway.errors.PermissionDenied, match="may be mistyped, expired or revoked"):
                await client.read(TEAM, "core")
        (event,) = server.events
        assert isinstance(event, AuthenticationFailed)
        assert event.caller == (server.caller if caller == "named" else "unknown")
        # The first request of a connection asks whether the server has its types.
        assert (event.why, event.path) == (why, "/headway.types.v1.TypesService/List")
        assert event.peer.startswith("127.0.0.1:")
        assert "hw_" not in str(vars(event))
        assert server.counted("authentication_failures") == {"": 1.0}


async def test_denied_call_reports_its_caller_and_the_request() -> None:
    """The caller may have a token or not. An allowed call reports nothing."""
    server = Server(rule("view"))
    async with server.client(server.text) as client:
        await client.list(TEAM, namespace="default", partition="default")
        assert server.events == []
        with pytest.raises(headway.errors.PermissionDenied):
            await client.write(TEAM.new("core", Team(note="x")))
    (event,) = server.events
    assert isinstance(event, CallDenied)
    path = "/headway.resource.v1.ResourceService/Write"
    assert (event.caller, event.what, event.path) == (server.caller, "write of staff.v1.Team in default/default", path)

    server = Server(rule("view"))
    async with server.client("") as client:
        with pytest.raises(headway.errors.PermissionDenied):
            await client.read(TEAM, "core")
    (event,) = server.events
    assert isinstance(event, CallDenied)
    assert (event.caller, event.what) == ("anonymous", "use of staff.v1.Team")
    assert server.counted("calls_denied") == {"anonymous": 1.0, "token": 0.0}


async def test_flood_of_denied_calls_is_counted_completely_and_reported_once_a_second(mock_clock: MockClock) -> None:
    """The end of a burst is reported without a further call.

    Anonymous calls hide no event about the bearer of a token.
    """
    server = Server(rule("view"))
    audit = Audit(server.report)
    backend = MemoryBackend()
    guarded = Guarded(lambda caller: ResourceService(backend, app.registry, caller), server.access, app.registry, audit)
    channel = InProcessChannel(guarded)
    nobody, named = Client(channel, app.registry), Client(channel, app.registry, token=server.text)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.report_rest)
        for _ in range(50):
            with pytest.raises(headway.errors.PermissionDenied):
                await nobody.read(TEAM, "core")
        with pytest.raises(headway.errors.PermissionDenied):
            await named.write(TEAM.new("core", Team(note="x")))
        assert [getattr(each, "caller", "") for each in server.events] == ["anonymous", server.caller]
        await wait_all_tasks_blocked()
        mock_clock.jump(1.0)
        await wait_all_tasks_blocked()
        assert server.counted("calls_denied") == {"anonymous": 50.0, "token": 1.0}
        assert [getattr(each, "suppressed", 0) for each in server.events] == [0, 0, 48]
        nursery.cancel_scope.cancel()


async def test_changed_policy_reports_the_callers_whose_rights_change() -> None:
    """Reading the same policies again reports nothing. A server that has ended reports nothing either."""
    server = Server(rule("view"))
    async with server.client(server.text) as client:
        await client.list(TEAM, namespace="default", partition="default")
        server.access.replace(Access([Policy("some", [rule("view")])], [server.token]))
        assert server.events == []
        async with client.watch(TEAM, namespace="default", partition="default") as watch:
            await watch.__anext__()
            server.access.replace(Access([Policy("some", [rule("read")]), Policy("anonymous", [])], [server.token]))
        expected = AccessChanged(("anonymous", "some"), ("anonymous", server.caller), 1)
        assert server.events == [expected]
        assert server.counted("access_changes") == {"": 1.0}
        server.access.replace(Access())
        assert len(server.events) == 2
    server.access.replace(Access([Policy("some", [])]))
    assert len(server.events) == 2


def test_change_of_many_tokens_is_one_event_of_bounded_length() -> None:
    heard: list[AccessChanged] = []
    access = Authorizer(Access())
    access.subscribe(heard.append)  # type: ignore[arg-type]  # it reports nothing else
    access.replace(Access([], [new_token([])[1] for _ in range(100)]))
    (event,) = heard
    assert (len(event.callers), event.callers[-1]) == (21, "and 80 more")


async def test_failed_authentication_at_reflection_is_reported() -> None:
    events: list[object] = []
    network = headway.Network(["127.0.0.1:0"], access=Authorizer(Access()))
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    async with (
        headway.open_engine("memory:", headway.App("plain"), network=network, report=events.append) as engine,
        open_channel(engine.addresses[0], decoders={path: lambda: list}) as channel,
    ):
        request = ServerReflectionRequest(list_services="")
        with pytest.raises(headway.errors.HeadwayError, match="the token is not valid"):
            async with channel.duplex(path, request, metadata={"x-consul-token": "no-token"}) as answers:
                await anext(aiter(answers))
    assert [each.path for each in events if isinstance(each, AuthenticationFailed)] == [path]
