"""The contract while the API server is killed, restarted, frozen, put back to a backup, or one of two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway.engine import Timing
from headway.errors import StoreRolledBack
from headway.events import DeletionsUnknown, RunEnded, StreamEnded
from headway.kubernetes import _http
from tests.helpers.kube_server import KubeServer, running_kube
from tests.kubernetes.connected import Program, running
from tests.kubernetes.test_kube_contract import Maps, until

SOON = 60.0


@pytest.fixture(scope="module")
def own_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """An API server for the tests of this module, which stop it."""
    with running_kube(tmp_path_factory.mktemp("own-kube")) as server:
        yield server


class Watching:
    """A program that notes what each reconcile has seen of a ConfigMap, and whether it went back in time."""

    def __init__(self, namespace: str) -> None:
        self.program = program = Program()
        self.seen: dict[str, str | None] = {}
        self.versions: dict[str, int] = {}
        self.went_back: list[str] = []
        self.events: list[object] = []

        @program.app.controller(manages=program.config_map.within(namespace=namespace))
        async def sites(rt: headway.Runtime, request: headway.Request[Any]) -> None:
            name, found = request.id.name, rt.cache.get(program.config_map, request.id)
            if found is not None:
                if int(found.version) < self.versions.get(name, 0):
                    self.went_back.append(name)
                self.versions[name] = int(found.version)
            elif self.seen.get(name) is None and name in self.seen:
                pass
            self.seen[name] = None if found is None else found.data.get("data", {}).get("v", "")

    def sees(self, **wanted: str | None) -> bool:
        """Return True if the last reconcile of each name has seen this."""
        return all(name in self.seen and self.seen[name] == value for name, value in wanted.items())


async def test_c2_c6_a_server_that_is_killed_and_restarted(own_kube: KubeServer, tmp_path: Path) -> None:
    """It has no history of before: each stream begins anew, and finds what was deleted meanwhile."""
    namespace = own_kube.new_namespace()
    test, maps = Watching(namespace), Maps(own_kube, namespace)
    with own_kube.second() as other:
        async with running(own_kube, test.program, namespace, tmp_path, report=test.events.append) as engine:
            await engine.wait_idle()
            for name in ("kept", "gone", "again"):
                maps.write(name, v="1")
            await until(lambda: test.sees(kept="1", gone="1", again="1"))
            own_kube.kill()
            elsewhere = Maps(other, namespace)
            elsewhere.delete("gone")
            elsewhere.delete("again")
            elsewhere.write("again", v="2")
            elsewhere.write("new", v="1")
            await trio.to_thread.run_sync(own_kube.start_ready)
            await until(lambda: test.sees(kept="1", gone=None, again="2", new="1"))
            with trio.fail_after(SOON):
                await engine.wait_idle()
            assert any(isinstance(each, StreamEnded) for each in test.events)
    assert test.went_back == []


async def test_c6_deletions_before_a_restart_of_the_server_are_unknown(own_kube: KubeServer, tmp_path: Path) -> None:
    namespace = own_kube.new_namespace()
    test, maps = Watching(namespace), Maps(own_kube, namespace)
    async with running(own_kube, test.program, namespace, tmp_path) as engine:
        await engine.wait_idle()
        maps.write("gone", v="1")
        await until(lambda: test.sees(gone="1"))
        with trio.fail_after(SOON):
            await engine.wait_idle()
    maps.delete("gone")
    own_kube.kill()
    await trio.to_thread.run_sync(own_kube.start_ready)
    async with running(own_kube, test.program, namespace, tmp_path, report=test.events.append) as engine:
        with trio.fail_after(SOON):
            await engine.wait_idle()
    assert any(isinstance(each, DeletionsUnknown) for each in test.events)


async def test_c2_a_store_that_is_put_back_stops_the_controller(own_kube: KubeServer, tmp_path: Path) -> None:
    """An API server would answer the old streams with silence, and reads with old data."""
    namespace = own_kube.new_namespace()
    test, maps = Watching(namespace), Maps(own_kube, namespace)
    maps.write("web", v="1")
    copy = tmp_path / "copy"
    own_kube.save_store(copy)
    timing = Timing(lag_limit=2)
    async with running(own_kube, test.program, namespace, tmp_path, report=test.events.append, timing=timing) as engine:
        await engine.wait_idle()
        for number in range(2, 30):
            maps.write("web", v=str(number))
        await until(lambda: test.sees(web="29"))
        await trio.to_thread.run_sync(own_kube.restore_store, copy)

        def lost() -> bool:
            return any(isinstance(each, RunEnded) and isinstance(each.error, StoreRolledBack) for each in test.events)

        await until(lost)
        assert test.sees(web="29")
        assert engine.accept_store()
        await until(lambda: test.sees(web="1"))


async def test_c1_c2_a_server_that_is_frozen(
    own_kube: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent stream is left, and what it would have brought later is refused."""
    monkeypatch.setattr(_http, "SILENCE", 3.0)
    namespace = own_kube.new_namespace()
    test, maps = Watching(namespace), Maps(own_kube, namespace)
    with own_kube.second() as other:
        async with running(own_kube, test.program, namespace, tmp_path, report=test.events.append) as engine:
            await engine.wait_idle()
            maps.write("web", v="1")
            await until(lambda: test.sees(web="1"))
            own_kube.pause()
            try:
                elsewhere = Maps(other, namespace)
                elsewhere.delete("web")
                elsewhere.write("web", v="2")
                await until(lambda: any(isinstance(each, StreamEnded) for each in test.events))
                assert test.sees(web="1")
            finally:
                own_kube.resume()
            await until(lambda: test.sees(web="2"))
            with trio.fail_after(SOON):
                await engine.wait_idle()
    assert test.went_back == []


async def test_c6_a_history_that_is_compacted_under_a_watch(own_kube: KubeServer, tmp_path: Path) -> None:
    namespace = own_kube.new_namespace()
    test, maps = Watching(namespace), Maps(own_kube, namespace)
    async with running(own_kube, test.program, namespace, tmp_path) as engine:
        await engine.wait_idle()
        maps.write("web", v="1")
        await until(lambda: test.sees(web="1"))
        own_kube.compact()
        maps.write("web", v="2")
        maps.write("new", v="1")
        maps.delete("new")
        await until(lambda: test.sees(web="2", new=None))
        with trio.fail_after(SOON):
            await engine.wait_idle()
    assert test.went_back == []
