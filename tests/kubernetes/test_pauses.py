"""Pauses on a cluster: a label of a Lease stops a controller in every process, and nothing is lost meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

import headway
from headway.engine import Engine
from headway.kubernetes._leases import NAME, object_name
from headway.kubernetes._pauses import _LEASE, _pause, _WatchedPauses
from headway.pauses import ControllerPaused, pause_controller, resume_controller
from headway.resource import Within, resource_key
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import Program, running
from tests.kubernetes.test_kube_contract import until

SOON = 20.0
_MERGE = {"Content-Type": "application/merge-patch+json"}


class Copies:
    """A program that notes the keys that it reconciles."""

    def __init__(self, namespace: str) -> None:
        self.program = Program()
        self.seen: list[tuple[str, bool]] = []
        app, self.config_map = self.program.app, self.program.config_map

        @app.controller(manages=self.config_map.within(namespace=namespace, metadata="copied=yes"), writes=[])
        async def copies(rt: headway.Runtime, request: headway.Request[Any]) -> None:
            self.seen.append((request.id.name, rt.cache.get(self.config_map, request.id) is not None))

        self.namespace = namespace

    async def write(self, engine: Engine, name: str) -> headway.Resource[Any]:
        made = self.config_map.new(name, {"data": {}}, namespace=self.namespace, metadata={"copied": "yes"})
        return await engine.client.write(made)


def reason(engine: Engine) -> str | None:
    """Return why the controller is paused, or None."""
    return engine.controllers["copies"].status().paused


def queued(engine: Engine) -> int:
    """Return the number of keys that are ready."""
    queue = engine.controllers["copies"].status().queue
    return 0 if queue is None else queue.ready


async def test_c6_what_comes_while_a_controller_is_paused_is_not_lost(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """Not by a restart, either: the pause and the checkpoint are in the cluster."""
    first, second = Copies(namespace), Copies(namespace)
    with trio.fail_after(3 * SOON):
        async with running(kube, first.program, namespace, tmp_path) as engine:
            one, two = await first.write(engine, "one"), await first.write(engine, "two")
            await engine.wait_idle()
            assert await pause_controller(engine.client, "sites/copies", "the disks are being replaced")
            assert not await pause_controller(engine.client, "sites/copies", "the disks are being replaced")
            await until(lambda: reason(engine) == "the disks are being replaced")
            before = list(first.seen)
            await engine.client.delete(one)
            await engine.client.write(two)
            await until(lambda: queued(engine) > 0)
            with pytest.raises(ControllerPaused, match="the disks are being replaced"), trio.fail_after(SOON):
                await engine.wait_idle()
        assert first.seen == before
        async with running(kube, second.program, namespace, tmp_path) as engine:
            await second.write(engine, "three")
            await until(lambda: reason(engine) is not None and queued(engine) >= 2)
            assert second.seen == []
            assert await resume_controller(engine.client, "sites/copies")
            assert not await resume_controller(engine.client, "sites/copies")
            await engine.wait_idle()
        assert {("one", False), ("two", True), ("three", True)} <= set(second.seen)


async def test_a_label_of_a_lease_pauses_its_controller(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """As `kubectl label lease` sets it. The holder of the Lease renews it with the label."""
    copies = Copies(namespace)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def label(client: httpx.Client, kind: str, value: str | None) -> None:
        body = {"metadata": {"labels": {"headway.dev/paused": value}}}
        path = f"{leases}/{object_name(kind, 'sites/copies')}"
        client.patch(path, json=body, headers=_MERGE).raise_for_status()

    with trio.fail_after(3 * SOON), kube.client() as client:
        async with running(kube, copies.program, namespace, tmp_path) as engine:
            await engine.wait_idle()
            found = client.get(leases).json()["items"]
            assert {each["metadata"]["annotations"][NAME] for each in found} == {"sites/copies"}
            label(client, "lease", "disks")
            await until(lambda: reason(engine) == "disks")
            label(client, "fence", "true")
            label(client, "lease", None)
            await until(lambda: reason(engine) == "")
            await copies.write(engine, "one")
            await until(lambda: queued(engine) > 0)
            assert copies.seen == []
            assert await resume_controller(engine.client, "sites/copies")
            await engine.wait_idle()
            assert copies.seen == [("one", True)]
            found = client.get(leases, params={"labelSelector": "headway.dev/paused"}).json()["items"]
            assert found == []
            assert await pause_controller(engine.client, "sites/copies", "the disks")
            label(client, "pause", None)
            label(client, "pause", "network")
            await until(lambda: reason(engine) == "network")


def test_pause_has_the_key_by_which_its_stream_is_asked() -> None:
    """Otherwise a barrier of that stream waits in vain for what it has delivered."""
    meta = {"name": "sites.copies", "namespace": "web", "uid": "u", "resourceVersion": "1"}
    watched = _WatchedPauses(_LEASE, Within("*", "web"))
    assert watched.key_of(meta) == resource_key(_pause({"metadata": meta}, False))
