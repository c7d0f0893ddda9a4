"""Health as a Go probe and grpcio's health client see it, without a token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
from grpc_health.v1 import health_pb2, health_pb2_grpc

import headway
from headway.access import Access, Authorizer
from headway.rpc import open_forwarder
from headway.storage import MemoryBackend, StoreProblem
from tests.helpers.go_programs import need_go_program
from tests.helpers.plain_types import Team
from tests.rpc.rpc_kit import certificates

SERVICES = (
    "",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "hashicorp.consul.resource.ResourceService",
    "headway.lease.v1.LeaseService",
    "headway.migration.v1.MigrationService",
    "headway.resource.v1.ResourceService",
    "headway.types.v1.TypesService",
)
SERVING, FAILED, NOT_SERVING = 0, 2, 4
app = headway.App("staff")


app.type("staff", "v1", "Team", Team)


async def probe(where: str, service: str = "", *options: str) -> int:
    """Run the probe and return its result."""
    command = [str(need_go_program("probe")), "-addr", where, "-service", service, *options]
    with trio.fail_after(30):
        return (await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)).returncode


class Fails(MemoryBackend):
    """A store that can be closed and opened again."""

    closed = False

    @property
    def position(self) -> Any:
        if self.closed:
            raise headway.errors.StoreUnusable("the store is closed")
        return super().position


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # the condition has no event
            await trio.sleep(0.01)


async def test_probe_reports_the_store_and_needs_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Access control is on. A forwarder reports the health of its upstream."""
    monkeypatch.setattr("headway.engine._store_health.EVERY", 0.02)
    store = Fails()
    async with (
        headway.open_engine(
            store, app, network=headway.Network(["127.0.0.1:0"], access=Authorizer(Access()))
        ) as engine,
        open_forwarder(engine.addresses, ["127.0.0.1:0"]) as forwarder,
    ):
        for where in (engine.addresses[0], forwarder.addresses[0]):
            assert [await probe(where, service) for service in ("", SERVICES[4], "nobody")] == [
                SERVING,
                SERVING,
                FAILED,
            ]
        store.closed = True
        await until(lambda: engine.store_problem is StoreProblem.UNUSABLE)
        for where in (engine.addresses[0], forwarder.addresses[0]):
            assert [await probe(where, service) for service in ("", SERVICES[4])] == [NOT_SERVING, NOT_SERVING]
        store.closed = False
        await until(lambda: engine.store_problem is None)
        assert await probe(engine.addresses[0]) == SERVING


async def test_probe_works_over_tls(tmp_path: Path) -> None:
    """It trusts the authority that it is given."""
    made = certificates(tmp_path)
    async with headway.open_engine(
        "memory:", app, network=headway.Network(["127.0.0.1:0"], tls=made.server, access=Authorizer(Access()))
    ) as engine:
        assert await probe(engine.addresses[0], "", "-tls-ca-cert", str(made.ca)) == SERVING
        assert await probe(engine.addresses[0]) == FAILED


async def test_health_client_of_grpcio_finds_every_service() -> None:
    """It has no token. An unknown service is NOT_FOUND, and SERVICE_UNKNOWN in a watch."""

    def client(where: str) -> tuple[list[int], Any, int]:
        with grpc.insecure_channel(where) as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            def asked(service: str) -> Any:
                return health_pb2.HealthCheckRequest(service=service)

            statuses = [stub.Check(asked(service), timeout=20).status for service in SERVICES]
            with pytest.raises(grpc.RpcError) as refused:
                stub.Check(asked("nobody"), timeout=20)
            return statuses, refused.value.code(), next(stub.Watch(asked("nobody"), timeout=20)).status

    async with headway.open_engine(
        "memory:", app, network=headway.Network(["127.0.0.1:0"], access=Authorizer(Access()))
    ) as engine:
        statuses, code, unknown = await trio.to_thread.run_sync(client, engine.addresses[0])
    assert statuses == [health_pb2.HealthCheckResponse.SERVING] * len(SERVICES)
    assert code is grpc.StatusCode.NOT_FOUND
    assert unknown == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
