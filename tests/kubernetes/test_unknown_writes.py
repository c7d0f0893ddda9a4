"""Writes with an unknown outcome: what is found out for an object holds, whatever arrives later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from headway import kubernetes
from headway.api import Code, NotBegun, call_of, of_call
from headway.client import Acknowledged, Client, LeaseClient
from headway.errors import HeadwayError, OutcomeUnknown, PermissionDenied, Unavailable
from headway.kubernetes._open import open_channel
from headway.resource import ConditionState, Resource, ResourceType, pb
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import Program, Spec, Website, connected, deployment, install_crd, wait_served
from tests.kubernetes.gates import GatedServer


class OfRun:
    """The owner of a client's writes, as a run is."""

    governor = None
    store_id = ""

    def __init__(self, fence: pb.Fence) -> None:
        self.fence = fence
        self.unknowns = 0

    def acknowledged(self, write: Acknowledged) -> None: ...
    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None: ...
    def fenced(self, fence: pb.Fence | None) -> None: ...

    def unknown(self, error: OutcomeUnknown | None, request: Any = None) -> None:  # noqa: ARG002  # see `Writes`
        self.unknowns += 1


class Fenced:
    """A client with a fence, behind a connection that loses answers, and a plain client."""

    def __init__(self, gated: GatedServer, leases: LeaseClient, of_run: OfRun, client: Client, plain: Client) -> None:
        self.gated, self.leases, self.of_run, self.client, self.plain = gated, leases, of_run, client, plain
        self.number = of_run.fence.number
        self.warnings: list[str] = []

    async def lose(self, write: Callable[[], Awaitable[object]], *, arrives: bool) -> None:
        """Make a write whose answer is lost, and which has arrived or arrives later."""
        self.gated.loses, self.gated.arrives_at_once = 1, arrives
        with pytest.raises(OutcomeUnknown):
            await write()
        assert self.of_run.unknowns == 1

    async def settle(self) -> None:
        """Find out what is unknown, as a run does."""
        self.number += 1
        fence = self.of_run.fence
        await self.leases.raise_fence(fence.controller, fence.member, term=fence.term, number=self.number)

    async def arrive(self) -> None:
        """Let the late write arrive: the API server refuses it for a good reason."""
        (end,) = await self.gated.arrive()
        assert isinstance(end, HeadwayError), end
        assert call_of(end) is not None


@asynccontextmanager
async def fenced(kube: KubeServer, program: Program, namespace: str, folder: Path) -> AsyncIterator[Fenced]:
    async with connected(kube, program, namespace, folder) as (plain, server, _):
        gated = GatedServer(server)
        warnings: list[str] = []
        async with open_channel(gated, program.app.registry, namespace, warnings.append) as channel:  # type: ignore[arg-type]  # the same methods
            leases = LeaseClient(channel)
            raised = await leases.raise_fence("sites/sites", "", number=1)
            of_run = OfRun(raised.fence)
            test = Fenced(gated, leases, of_run, Client(channel, program.app.registry, of_run), plain)
            test.warnings = warnings
            yield test


Change = Callable[[Client, Resource[Any]], Awaitable[object]]


async def replace(client: Client, made: Resource[Any]) -> None:
    made.data["spec"]["replicas"] = 7
    await client.write(made)


async def apply(client: Client, made: Resource[Any]) -> None:
    type = made.type
    await client.apply(type.new(made.name, deployment(7), namespace=made.id.namespace), force=True)


async def rescale(client: Client, made: Resource[Any]) -> None:
    await kubernetes.scale(client, made, 7)


async def update_status(client: Client, made: Resource[Any]) -> None:
    made.data["status"] = {"replicas": 7}
    await kubernetes.update_status(client, made)


async def delete(client: Client, made: Resource[Any]) -> None:
    await client.delete(made)


@pytest.mark.parametrize("change", [replace, apply, rescale, update_status, delete])
async def test_c5_a_late_write_is_refused_once_it_is_settled(
    kube: KubeServer, namespace: str, tmp_path: Path, change: Change
) -> None:
    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        made = await test.plain.apply(program.deployment.new("web", deployment(), namespace=namespace))
        await test.lose(lambda: change(test.client, made.copy()), arrives=False)
        await test.settle()
        settled = await test.plain.read(program.deployment, made.id)
        assert settled.data["spec"]["replicas"] == 1
        assert settled.generation == made.generation
        await test.arrive()
        assert await test.plain.read(program.deployment, made.id) == settled


@pytest.mark.parametrize("change", [replace, apply, rescale, update_status, delete])
async def test_c5_a_write_that_was_stored_is_found(
    kube: KubeServer, namespace: str, tmp_path: Path, change: Change
) -> None:
    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        made = await test.plain.apply(program.deployment.new("web", deployment(), namespace=namespace))
        await test.lose(lambda: change(test.client, made.copy()), arrives=True)
        stored = await test.plain.get(program.deployment, made.id)
        assert stored is None or stored.version != made.version
        await test.settle()
        assert await test.plain.get(program.deployment, made.id) == stored


@pytest.mark.parametrize("verb", ["create", "apply", "write"])
async def test_c5_a_creation_is_settled_by_itself(kube: KubeServer, namespace: str, tmp_path: Path, verb: str) -> None:
    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        wanted = program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace)
        await test.lose(lambda: getattr(test.client, verb)(wanted), arrives=False)
        assert await test.plain.get(program.config_map, wanted.id) is None
        await test.settle()
        settled = await test.plain.read(program.config_map, wanted.id)
        assert settled.data["data"] == {"a": "1"}
        await test.arrive()
        assert await test.plain.read(program.config_map, wanted.id) == settled


async def test_c5_conditions_are_settled(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    install_crd(kube)
    async with fenced(kube, program, namespace, tmp_path) as test:
        await wait_served(test.gated._server)
        site = program.website.new("blog", Website(spec=Spec(image="web:1")), namespace=namespace)
        made = await test.plain.write(site)
        ready = pb.Condition(type="Ready", state=ConditionState.TRUE, reason="Up")
        await test.lose(lambda: test.client.write_status(made, "sites", [ready]), arrives=False)
        await test.settle()
        await test.arrive()
        assert (await test.plain.read(program.website, made.id)).status == {}


@pytest.mark.parametrize("change", [rescale, delete])
async def test_c5_a_write_whose_sequel_fails_is_unknown(
    kube: KubeServer, namespace: str, tmp_path: Path, change: Change
) -> None:
    """It was stored, though the call that follows it had no effect."""
    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        made = await test.plain.apply(program.deployment.new("web", deployment(), namespace=namespace))
        test.gated.written = False
        test.gated.refuses_reads_after_a_write = NotBegun(Code.UNAVAILABLE, "the test refuses to read")
        with pytest.raises(OutcomeUnknown, match="not all that follows"):
            await change(test.client, made.copy())
        test.gated.refuses_reads_after_a_write = None
        assert test.of_run.unknowns == 1
        await test.settle()


async def test_a_creation_that_was_half_done_is_no_conflict(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A process that ends between the creation and the change of its managers owns its fields by both."""
    program = Program()
    type = program.config_map
    async with fenced(kube, program, namespace, tmp_path) as test:
        path = type.path(namespace)
        object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"a": "1", "b": "1"}}
        await test.gated.call("POST", path, params={"fieldManager": "sites/sites"}, body=object)
        applied = await test.client.apply(type.new("web", {"data": {"a": "2"}}, namespace=namespace))
        assert applied.data["data"] == {"a": "2"}
        again = await test.client.apply(type.new("web", {"data": {"c": "3"}}, namespace=namespace), force=True)
        assert again.data["data"] == {"c": "3"}


async def test_a_refused_fencing_write_stops_no_controller(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        made = await test.plain.apply(program.deployment.new("web", deployment(), namespace=namespace))
        await test.lose(lambda: replace(test.client, made.copy()), arrives=False)
        test.gated.refuses["PATCH"] = (1, of_call(PermissionDenied("no patch")))
        await test.settle()
        assert len(test.warnings) == 1
        assert "Deployment" in test.warnings[0]


async def test_a_write_that_is_canceled_is_unknown(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    import trio

    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        made = await test.plain.apply(program.deployment.new("web", deployment(), namespace=namespace))
        with trio.CancelScope() as scope:
            scope.cancel()
            await replace(test.client, made.copy())
        assert test.of_run.unknowns == 1
        await test.settle()
        assert (await test.plain.read(program.deployment, made.id)).data["spec"]["replicas"] == 1


async def test_a_creation_by_apply_that_another_program_changes_at_once_is_known(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """C5: a Deployment's own controller writes its status as soon as there is one."""
    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        turns = 0

        async def change() -> None:
            nonlocal turns
            turns += 1
            if turns <= 2:
                found = await test.plain.read(program.deployment, "web", namespace=namespace)
                found.metadata[f"turn-{turns}"] = "yes"
                await test.plain.write(found)

        test.gated.before_patches = change
        wanted = program.deployment.new("web", deployment(replicas=2), namespace=namespace, metadata={"app": "web"})
        made = await test.client.apply(wanted)
        assert turns == 3
        assert made.metadata == {"app": "web", "turn-1": "yes", "turn-2": "yes"}
        # It owns what it has applied, and so may take it away.
        test.gated.before_patches = None
        applied = await test.client.apply(program.deployment.new("web", deployment(replicas=2), namespace=namespace))
        assert applied.metadata == {"turn-1": "yes", "turn-2": "yes"}
        assert test.of_run.unknowns == 0


async def test_a_webhook_that_is_down_leaves_no_outcome_unknown(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """Otherwise one of these would stop a controller for every namespace."""
    program = Program()
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    webhook = {
        "name": "dead.headway.dev",
        "clientConfig": {"url": "https://127.0.0.1:9/x"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    async with fenced(kube, program, namespace, tmp_path) as test:
        with kube.client() as person:
            made = person.post(path, json={"metadata": {"name": namespace}, "webhooks": [webhook]})
            assert made.is_success, made.text
            try:
                with trio.fail_after(20):
                    while True:
                        # Until the API server knows of it.
                        new = program.config_map.new(f"web-{trio.current_time()}", namespace=namespace)
                        try:
                            await test.client.write(new)
                        except Unavailable as error:
                            said = str(error)
                            break
                        await trio.sleep(0.1)
                assert "failed calling webhook" in said
                assert test.of_run.unknowns == 0
                await test.settle()
            finally:
                person.delete(f"{path}/{namespace}")


async def test_finding_out_goes_on_without_its_caller(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A call may take longer than the patience of a run, which would otherwise begin again and again."""
    program = Program()
    async with fenced(kube, program, namespace, tmp_path) as test:
        made = await test.plain.write(program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace))
        made.data["data"]["a"] = "2"
        await test.lose(lambda: test.client.write(made), arrives=False)
        began, may = trio.Event(), trio.Event()

        async def slow() -> None:
            began.set()
            await may.wait()

        test.gated.before_patches = slow
        async with trio.open_nursery() as nursery:
            nursery.start_soon(test.settle)
            await began.wait()
            nursery.cancel_scope.cancel()
        test.gated.before_patches = None
        may.set()
        await test.settle()
        assert [method for method, path in test.gated.calls if path.endswith("/web")].count("PATCH") == 1
        await test.arrive()
