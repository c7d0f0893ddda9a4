"""A stock Envoy is configured by the server, and fails no request while its configuration changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from mesh.xds import DeltaStream, Kind, Response, Snapshot, Snapshots
from tests.mesh.xds.builders import cluster, endpoints, listener, route
from tests.mesh.xds.real_envoy import NO_ENVOY, Load, backend, find_envoy, free_port, running, served, until, until_true

pytestmark = [pytest.mark.envoy, pytest.mark.skipif(find_envoy() is None, reason=NO_ENVOY)]
C, E, L, R = Kind.CLUSTER, Kind.ENDPOINTS, Kind.LISTENER, Kind.ROUTE


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Response]:
    """Record all responses that the server makes."""
    made: list[Response] = []
    take = DeltaStream.take

    def recorded(self: DeltaStream) -> Response | None:
        if (response := take(self)) is not None:
            made.append(response)
        return response

    monkeypatch.setattr(DeltaStream, "take", recorded)
    return made


async def test_endpoints_weights_clusters_and_routes_change_without_a_failed_request(
    tmp_path: Path, sent: list[Response]
) -> None:
    """The old ones serve until the new ones can."""
    source, port = Snapshots(), free_port()
    url = f"http://127.0.0.1:{port}/"

    def publish(weights: dict[str, int], **ports: int) -> None:
        """Give the proxy these clusters, with one endpoint each, and a route to them."""
        parts = [each for name, at in ports.items() for each in (cluster(name), endpoints(name, at))]
        source["web"] = Snapshot([*parts, listener("in", port, "r"), route("r", weights)])

    async with backend() as one, backend() as two, served(source) as control:
        publish({"a": 1}, a=one)
        async with running(tmp_path, control):
            await until(url, lambda got: got.text == str(one))
            assert [each.kind for each in sent] == [C, E, L, R]
            async with Load.on(url) as load:
                await load.more(50)
                sent.clear()
                publish({"a": 1}, a=two)
                await load.more(50, str(two))
                assert [(each.kind, len(each.resources)) for each in sent] == [(E, 1)]
                sent.clear()
                publish({"a": 1}, a=two)
                await load.more(50)
                assert sent == [], "nothing has changed"
                # The new cluster is ready before the route names it, and the old one goes last.
                publish({"b": 1}, b=one)
                await load.more(50, str(one))
                await until_true(lambda: [(each.kind, *each.removed) for each in sent][-1:] == [(C, "a")])
                assert [each.kind for each in sent] == [C, E, R, C]
                publish({"b": 9, "c": 1}, b=one, c=two)
                await load.more(1, str(two))
                before = load.answers.copy()
                await load.more(1000)
                share = (load.answers - before)[str(two)] / (load.answers - before).total()
                assert 0.05 < share < 0.15
                for turn in range(40):
                    publish({f"x{turn}": 1}, **{f"x{turn}": (one, two)[turn % 2]})
                    await load.more(3)
            assert load.failures == []
            assert load.answers.total() > 1200


async def test_rejected_resource_is_reported_in_the_words_of_envoy_and_the_rest_goes_on(
    tmp_path: Path, sent: list[Response]
) -> None:
    """The bad cluster and its good neighbor come in one response."""
    source, port = Snapshots(), free_port()
    url = f"http://127.0.0.1:{port}/"
    async with backend() as one, backend() as two, served(source) as control:
        rest = [listener("in", port, "r")]
        source["web"] = Snapshot([cluster("a"), endpoints("a", one), *rest, route("r", {"a": 1})])
        async with running(tmp_path, control):
            await until(url, lambda got: got.text == str(one))
            async with Load.on(url) as load:
                broken = cluster("broken", seconds=-1.0)
                good = [cluster("b"), endpoints("b", two), *rest, route("r", {"b": 1})]
                source["web"] = Snapshot([broken, *good])
                await load.more(50, str(two))
                rejection = source.rejections["web"]
                assert (rejection.kind, rejection.versions) == (C, {"broken": broken.version})
                assert "expected positive duration" in rejection.words.lower()
                sent.clear()
                source["web"] = Snapshot([broken, *good])
                await load.more(20)
                assert sent == []
            assert load.failures == []


async def test_reconnected_envoy_gets_only_what_has_changed(tmp_path: Path, sent: list[Response]) -> None:
    """Traffic goes on while the server is away, and nothing equal is sent by its successor."""
    source, port, control_port = Snapshots(), free_port(), free_port()
    url = f"http://127.0.0.1:{port}/"
    async with backend() as one, backend() as two:
        rest = [cluster("a"), cluster("b"), listener("in", port, "r"), endpoints("b", one)]
        source["web"] = Snapshot([*rest, endpoints("a", one), route("r", {"a": 1})])
        async with trio.open_nursery() as nursery:
            first = trio.CancelScope()

            async def serve_first() -> None:
                with first:
                    async with served(source, control_port):
                        await trio.sleep_forever()

            nursery.start_soon(serve_first)
            async with running(tmp_path, f"127.0.0.1:{control_port}"):
                await until(url, lambda got: got.text == str(one))
                async with Load.on(url) as load:
                    first.cancel()
                    await until_true(lambda: not source.streams("web"))
                    await load.more(50)
                    sent.clear()
                    successor = Snapshots()
                    async with served(successor, control_port):
                        await until_true(lambda: successor.streams("web") == 1)
                        await load.more(50)
                        assert sent == [], "it has no snapshot yet"
                        successor["web"] = Snapshot([*rest, endpoints("a", two), route("r", {"a": 1})])
                        await load.more(20, str(two))
                        assert [(each.kind, [got.name for got in each.resources]) for each in sent] == [(E, ["a"])]
                assert load.failures == []


async def test_envoy_whose_cluster_warms_during_an_outage_gets_its_endpoints_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it has them, for the old cluster. It would ask for no clusters, and wait for 15 seconds."""
    source, port, control_port = Snapshots(), free_port(), free_port()
    take = DeltaStream.take

    def without_endpoints(self: DeltaStream) -> Response | None:
        made = take(self)
        return None if made is not None and made.kind is E else made

    async with backend() as one, trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def serve_first() -> None:
            with first:
                async with served(source, control_port):
                    await trio.sleep_forever()

        rest = [endpoints("a", one), listener("in", port, "r"), route("r", {"a": 1})]
        source["web"] = Snapshot([cluster("a"), *rest])
        nursery.start_soon(serve_first)
        async with running(tmp_path, f"127.0.0.1:{control_port}") as admin:
            warming = f"{admin}/stats?filter=warming_clusters"
            await until(f"http://127.0.0.1:{port}/", lambda got: got.text == str(one))
            monkeypatch.setattr(DeltaStream, "take", without_endpoints)
            source["web"] = Snapshot([cluster("a", 2), *rest])
            await until(warming, lambda got: got.text.split() == ["cluster_manager.warming_clusters:", "1"])
            first.cancel()
            await until_true(lambda: not source.streams("web"))
            monkeypatch.setattr(DeltaStream, "take", take)
            async with served(source, control_port):
                await until(warming, lambda got: got.text.split()[-1:] == ["0"], seconds=8)
