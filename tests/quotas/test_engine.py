"""Quotas through a running engine: refusals, deletions, controllers, rights, metrics, and stores that keep none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

import headway
from headway import Condition, Request, ResourceType, Runtime, Scope, field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.client import Client, until_gone
from headway.errors import FailedPrecondition, InvalidArgument, PermissionDenied, QuotaExceeded
from headway.events import ignore
from headway.observe import Metrics
from headway.quotas import QUOTA, Quota, QuotaInfo, list_quotas, quotas_now
from headway.resource import NAMESPACE, Namespace
from headway.storage import Backend, MemoryBackend, SqliteBackend, copy_store
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.postgres_server import PostgresServer


@headway.message
class Team:
    text: str = field(1)


@headway.message
class Badge:
    text: str = field(1)


@headway.message
class Beast:
    text: str = field(1)


@headway.message
class Region:
    text: str = field(1)


def staff() -> tuple[headway.App, ResourceType[Team]]:
    app = headway.App("staff")
    return app, app.type("staff", "v1", "Team", Team)


def quota(name: str = "teams", **limits: object) -> headway.Resource[Quota]:
    return QUOTA.new(name, Quota(**limits))  # type: ignore[arg-type]  # fields by name


async def info(client: Client) -> QuotaInfo:
    [found] = await list_quotas(client)
    return found


@pytest.fixture(
    params=["memory", *(pytest.param(name, marks=pytest.mark.wide) for name in ("sqlite", "etcd", "postgres"))]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd")
        return f"etcd://{server.endpoint}{server.new_prefix()}"
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return postgres.new_url()
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'staff.db'}"


async def test_refused_write_names_the_quota_in_process_and_over_the_network(url: str) -> None:
    """The typed error has the quota, its limit and its use. The write is certainly not stored."""
    app, team = staff()
    async with headway.open_engine(
        url, app, network=headway.Network(["127.0.0.1:0"], insecure=True), report=ignore
    ) as engine:
        await engine.client.write(quota(max_resources=1))
        await engine.client.write(team.new("a", Team()))
        async with headway.connect(engine.addresses[0], app, insecure=True) as remote:
            for client in (engine.client, remote):
                with pytest.raises(
                    QuotaExceeded, match="quota 'teams' is exceeded: partition default may have 1 res"
                ) as e:
                    await client.write(team.new("b", Team()))
                assert (e.value.quota, e.value.what, e.value.limit, e.value.use, e.value.adds) == (
                    "teams",
                    "resources",
                    1,
                    1,
                    1,
                )
                assert await client.get(team, "b") is None
            assert (await info(remote)).refused == 2
            assert (await info(remote))[:5] == ("teams", "default", "", "", 1)


async def test_resources_in_a_full_namespace_can_be_deleted_and_updated(url: str) -> None:
    """Its finalizers can be removed, its controllers can write a status, and the namespace itself can be deleted."""
    app, team = staff()

    @app.controller(manages=team)
    async def teams(rt: Runtime, request: Request) -> None:
        found = rt.cache.get(team, request.id)
        if found is not None and found.is_deleting:
            found.finalizers = found.finalizers - {"held"}
            await rt.client.write(found)
        elif found is not None:
            await rt.client.write_status(found, "teams", [Condition(type="Ready", reason="Counted", message="x" * 500)])

    async with headway.open_engine(url, app, report=ignore) as engine:
        client = engine.client
        await client.write(NAMESPACE.new("red", Namespace()))
        made = team.new("a", Team(text="x" * 100), namespace="red")
        made.finalizers = frozenset({"held"})
        made = await client.write(made)
        await client.write(quota(namespace="red", max_resources=1, max_bytes=1))
        await engine.wait_idle()
        made = await client.read(team, made.id)
        assert made.status["teams"].conditions
        await client.write(team.new("a", Team(text="x"), namespace="red"))
        await engine.wait_idle()
        with pytest.raises(QuotaExceeded, match="namespace red may have 1 bytes"):
            await client.write(team.new("a", Team(text="x" * 100), namespace="red"))
        await client.delete(NAMESPACE.id("red"))
        with trio.fail_after(30):
            await until_gone(client, NAMESPACE, NAMESPACE.id("red"))
        assert (await info(client)).resources == 0


async def test_metrics_have_the_use_the_limit_and_the_refusals() -> None:
    app, team = staff()
    metrics = Metrics()
    async with headway.open_engine("memory:", app, report=metrics) as engine:
        metrics.watch_quotas(lambda: quotas_now(engine))
        assert b"headway_quota_use{" not in metrics.text()
        await engine.client.write(quota(max_resources=1))
        await engine.client.write(team.new("a", Team()))
        with pytest.raises(QuotaExceeded):
            await engine.client.write(team.new("b", Team()))
        text = metrics.text().decode()
    labels = 'namespace="",partition="default",quota="teams",what="resources"'
    assert f"headway_quota_use{{{labels}}} 1.0" in text
    assert f"headway_quota_limit{{{labels}}} 1.0" in text
    assert 'headway_quota_refusals_total{quota="teams"} 1.0' in text


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({}, "max_resources or max_bytes is required"),
        ({"max_resources": 1, "group": "staff"}, "kind is required with group"),
        ({"max_bytes": 1, "kind": "Team"}, "group is required with kind"),
        ({"max_bytes": 1, "partition": "A b"}, "partition 'A b' is not a valid name"),
        ({"max_bytes": 2**63}, "max_bytes must be from 0 to"),
        ({"max_bytes": 1, "group": "event", "kind": "Event"}, "event.Event is Headway's own, which no quota counts"),
        ({"max_bytes": 1, "group": "staff.v1", "kind": "Team"}, "group 'staff.v1' must be snake_case"),
        ({"max_bytes": 1, "group": "*", "kind": "*"}, r"group '\*' must be snake_case"),
        ({"max_bytes": 1, "group": "staff", "kind": "Teem"}, "type staff.Teem is not registered; did you mean"),
        (
            {"max_bytes": 1, "group": "staff", "kind": "Region"},
            "staff.Region is in no partition, so no quota counts it",
        ),
        (
            {"max_bytes": 1, "group": "staff", "kind": "Badge", "namespace": "red"},
            "staff.Badge is in no namespace: leave namespace empty",
        ),
        (
            {"max_bytes": 1, "group": "tenancy", "kind": "Namespace", "namespace": "red"},
            "tenancy.Namespace is in no namespace: leave namespace empty",
        ),
    ],
)
async def test_invalid_quota_is_refused(limits: dict[str, object], said: str) -> None:
    app, _ = staff()
    app.type("staff", "v1", "Badge", Badge, scope=Scope.PARTITION)
    app.type("staff", "v1", "Region", Region, scope=Scope.CLUSTER)
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        with pytest.raises(InvalidArgument, match=said):
            await engine.client.write(quota(**limits))  # type: ignore[arg-type]  # none is a name


class KeepsNoQuotas:
    """A store of a program's own, which takes no rules: it has only what `Backend` requires."""

    def __init__(self) -> None:
        self._inner = MemoryBackend()

    def __getattr__(self, name: str) -> object:
        if "rules" in name:
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def __aenter__(self) -> KeepsNoQuotas:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


async def test_store_that_keeps_no_quotas_refuses_them() -> None:
    """A quota that limits nothing would look like a protection."""
    app, team = staff()
    backend: Backend = KeepsNoQuotas()  # type: ignore[assignment]  # it forwards everything
    async with headway.open_engine(backend, app, report=ignore) as engine:
        with pytest.raises(FailedPrecondition, match="KeepsNoQuotas keeps no quotas: use a store of Headway, or let"):
            await engine.client.write(quota(max_resources=1))
        with pytest.raises(FailedPrecondition, match="keeps no quotas"):
            await list_quotas(engine.client)
        assert quotas_now(engine) == ()
        await engine.client.write(team.new("a", Team()))
    async with headway.open_engine(source := MemoryBackend(), app, report=ignore) as engine:
        await engine.client.write(quota(max_resources=1))
    with pytest.raises(InvalidArgument, match="the source has quotas, which the target does not keep"):
        await copy_store(source, KeepsNoQuotas())  # type: ignore[arg-type]  # as above


async def test_copy_has_what_its_source_has_above_a_lowered_quota(tmp_path: Path) -> None:
    """A copy is not refused, even of kinds that come after the quotas. They hold in it, and its use is right."""
    app = headway.App("zoo")
    beast = app.type("zoo", "v1", "Beast", Beast)
    source = MemoryBackend()
    async with headway.open_engine(source, app, report=ignore) as engine:
        for name in "abc":
            await engine.client.write(beast.new(name, Beast(text=name * 100)))
        await engine.client.write(quota(max_resources=1, max_bytes=10))
        before = await info(engine.client)
    async with SqliteBackend(tmp_path / "copy.db") as target:
        await copy_store(source, target)
    async with headway.open_engine(f"sqlite:{tmp_path / 'copy.db'}", app, report=ignore) as engine:
        assert (await info(engine.client))[:8] == before[:8]
        with pytest.raises(QuotaExceeded):
            await engine.client.write(beast.new("d", Beast()))
        await engine.client.delete(beast.id("a"))


def rule(type: str, *verbs: str, partition: str = "default", namespace: str = "*") -> Rule:
    return Rule(verbs=verbs, type=type, partition=partition, namespace=namespace)


@asynccontextmanager
async def guarded(app: headway.App, *rules: Rule) -> AsyncIterator[tuple[Client, Client]]:
    """Open an engine. Yield its own client, and that of a caller with these rules."""
    text, token = new_token(["some"])
    access = Authorizer(Access([Policy("some", rules)], [token]))
    opened = headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access), report=ignore)
    async with opened as engine, headway.connect(engine.addresses[0], app, insecure=True, token=text) as remote:
        yield engine.client, remote


async def test_rights_within_a_partition_do_not_include_its_quotas() -> None:
    """A tenant who may do everything in the default partition can neither change nor list its quotas."""
    app, team = staff()
    async with guarded(app, rule("*", "*")) as (client, tenant):
        await client.write(quota(max_resources=1))
        await tenant.write(team.new("a", Team()))
        with pytest.raises(QuotaExceeded, match="quota 'teams'"):
            await tenant.write(team.new("b", Team()))
        for attempt in (
            tenant.write(quota(max_resources=2)),
            tenant.delete(QUOTA.id("teams")),
            list_quotas(tenant),
        ):
            with pytest.raises(PermissionDenied):
                await attempt


async def test_caller_sees_the_quotas_that_they_may_read() -> None:
    """A right to read quotas by the beginning of their names shows those."""
    app, _ = staff()
    rules = [
        Rule(verbs=["list"], type="tenancy.v1.Quota", partition="", namespace=""),
        Rule(verbs=["read"], type="tenancy.v1.Quota", partition="", namespace="", name_prefix="red-"),
    ]
    async with guarded(app, *rules) as (client, tenant):
        for name in ("red-teams", "blue-teams"):
            await client.write(quota(name, max_resources=1))
        assert [each.name for each in await list_quotas(tenant)] == ["red-teams"]
        assert [each.name for each in await list_quotas(client)] == ["blue-teams", "red-teams"]
