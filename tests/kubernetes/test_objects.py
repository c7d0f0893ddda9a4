"""Objects of Kubernetes as resources and back, without a server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import field, kubernetes
from headway.errors import DeclarationError, FailedPrecondition, InvalidArgument, PayloadError
from headway.kubernetes._any_json import parsed
from headway.kubernetes._cluster import Cluster
from headway.kubernetes._managers import taken_over
from headway.kubernetes._objects import merged_conditions, object_of, resource_of, revision_of
from headway.kubernetes._watch import TypeWatch
from headway.kubernetes._watched import Watched
from headway.resource import ConditionState, EndOfSnapshot, SnapshotChunk, Within, pb
from headway.why import Ref
from headway.why.answers._texts import id_of


@headway.message(name="tests.headway.dev.objects.Size")
class Size:
    size: int = field(1)


@headway.message(name="tests.headway.dev.objects.Disk")
class Disk:
    spec: Size = field(1)
    status: Size = field(2)


app = headway.App("objects")
DISK = kubernetes.resource(app, "example.org", "v1", "Disk", Disk)
NODE = kubernetes.builtin(app, "v1", "Node")


def types(api_version: str, kind: str) -> Any:
    return {("example.org/v1", "Disk"): DISK, ("v1", "Node"): NODE}.get((api_version, kind))


def disk(**more: Any) -> dict[str, Any]:
    meta = {"name": "a", "namespace": "shop", "uid": "u1", "resourceVersion": "12", "generation": 3}
    return {"apiVersion": "example.org/v1", "kind": "Disk", "metadata": {**meta, **more.pop("metadata", {})}, **more}


def test_every_part_of_the_metadata_comes_back() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u2", "controller": True}
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u3"}
    metadata = {
        "generateName": "web-",
        "labels": {"app": "web", "finalizers": "a label", "example.org/x": "y"},
        "annotations": {"app": "note", "example.org/x": "z"},
        "finalizers": ["b.org/two", "a.org/one"],
        "ownerReferences": [other, {**owner, "blockOwnerDeletion": False}],
    }
    made = resource_of(DISK, disk(metadata=metadata, spec={"size": 1}), types)
    assert (made.version, made.generation) == ("12", f"{3:020}")
    assert made.owner is not None
    assert (made.owner.name, made.owner.uid, made.owner.tenancy) == ("n", "u2", pb.Tenancy())
    assert DISK.view(made).finalizers == {"a.org/one", "b.org/two"}
    back = object_of(DISK, made)["metadata"]
    assert back["generateName"] == "web-"
    assert back["labels"] == {"app": "web", "finalizers": "a label", "example.org/x": "y"}
    assert back["annotations"] == {"app": "note", "example.org/x": "z"}
    assert sorted(back["finalizers"]) == ["a.org/one", "b.org/two"]
    assert back["ownerReferences"] == [other, {**owner, "blockOwnerDeletion": False}]


def test_an_owner_of_the_usual_form_needs_no_metadata() -> None:
    made = DISK.new("a", namespace="shop", owner=NODE.id("n", uid="u2")).message()
    reference = object_of(DISK, made)["metadata"]["ownerReferences"][0]
    stored = resource_of(DISK, disk(metadata={"ownerReferences": [reference]}), types)
    assert stored.owner == made.owner
    assert ":owners" not in stored.metadata


def test_another_owner_replaces_the_controller_alone() -> None:
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u3"}
    mine = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u2", "controller": True}
    made = resource_of(DISK, disk(metadata={"ownerReferences": [mine, other]}), types)
    made.owner = NODE.id("m", uid="u4").message()
    names = [each["name"] for each in object_of(DISK, made)["metadata"]["ownerReferences"]]
    assert names == ["d", "m"]


def test_conditions_belong_to_their_writers() -> None:
    def owned(manager: str, *names: str) -> dict[str, Any]:
        fields: dict[str, Any] = {f'k:{{"type":"{name}"}}': {} for name in names}
        return {"manager": manager, "fieldsV1": {"f:status": {"f:conditions": fields}}}

    conditions = [
        {"type": "Ready", "status": "True", "reason": "Up", "observedGeneration": 2},
        {"type": "Billed", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Odd", "status": "Perhaps", "lastTransitionTime": "not a time"},
    ]
    metadata = {"managedFields": [owned("disks", "Ready"), owned("billing", "Billed")]}
    made = resource_of(DISK, disk(metadata=metadata, status={"conditions": conditions, "size": 4}), types)
    assert {key: [each.type for each in status.conditions] for key, status in made.status.items()} == {
        "disks": ["Ready"],
        "billing": ["Billed"],
        "kubernetes": ["Odd"],
    }
    assert made.status["disks"].observed_generation == f"{2:020}"
    assert made.status["kubernetes"].conditions[0].state is ConditionState.UNKNOWN
    assert DISK.view(made).data.status.size == 4


@pytest.mark.parametrize("status", [{}, {"conditions": None}, {"conditions": []}, None])
def test_conditions_that_are_not_there(status: object) -> None:
    made = resource_of(DISK, disk(status=status), types)
    assert made.status == {}
    assert DISK.view(made).data.status.size == 0


def test_a_writers_conditions_replace_its_own_alone() -> None:
    stored = [
        {"type": "Ready", "status": "True", "lastTransitionTime": "then", "extra": "kept"},
        {"type": "Old", "status": "True", "lastTransitionTime": "then"},
        {"type": "Theirs", "status": "True", "lastTransitionTime": "then"},
    ]
    before = pb.Status(conditions=[pb.Condition(type="Ready"), pb.Condition(type="Old")])
    wanted = pb.Status(
        observed_generation=f"{7:020}",
        conditions=[
            pb.Condition(type="Ready", state=ConditionState.TRUE, reason="Up"),
            pb.Condition(type="New", state=ConditionState.FALSE),
        ],
    )
    made = {each["type"]: each for each in merged_conditions(stored, before, wanted, "now")}
    assert made.keys() == {"Theirs", "Ready", "New"}
    assert (made["Ready"]["lastTransitionTime"], made["Ready"]["observedGeneration"]) == ("then", 7)
    assert (made["New"]["lastTransitionTime"], made["New"]["reason"]) == ("now", "New")


def test_an_object_that_does_not_fit_its_class_stops_no_other() -> None:
    made = DISK.view(resource_of(DISK, disk(spec={"size": "large"}), types))
    assert (made.name, made.version) == ("a", "12")
    with pytest.raises(PayloadError):
        _ = made.data


@pytest.mark.parametrize("version", ["", "0", "01", "x1", "1.5", None, 5, str(2**63), "٣"])
def test_versions_that_cannot_be_compared_are_refused(version: object) -> None:
    with pytest.raises(FailedPrecondition, match="aggregated"):
        revision_of(version)


def test_what_a_manager_has_created_becomes_what_it_applies() -> None:
    """Of the defaults that the server has filled in, it owns none."""
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:strategy": {},
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}}},
            "f:names": {'v:"a"': {}, 'v:"b"': {}},
        },
    }
    mine = {"manager": "me", "operation": "Update", "fieldsV1": fields}
    others = [{"manager": "me", "operation": "Update", "subresource": "status"}, {"manager": "you"}]
    object = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"replicas": 1, "ports": [{"port": 80}], "names": ["a"]},
    }
    taken = taken_over([*others, mine], "me", object)
    assert taken is not None
    assert taken[:2] == others
    assert taken[2]["operation"] == "Apply"
    assert taken[2]["fieldsV1"] == {
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}},
            "f:names": {'v:"a"': {}},
        },
    }
    assert taken_over(taken, "me", object) is None


def test_a_manifest_is_a_mapping_whose_changes_are_encoded() -> None:
    made = NODE.new("n", {"spec": {"taints": []}})
    made.data["spec"]["taints"].append("x")
    assert NODE.view(made.message()).data.body == {"spec": {"taints": ["x"]}}
    del made.data["spec"]
    assert (len(made.data), list(made.data), "spec" in made.data) == (0, [], False)
    with pytest.raises(PayloadError, match="numbers"):
        NODE.new("n", {"spec": float("nan")})


class Scripted:
    """A connection on which a test says what comes."""

    def __init__(self, *lines: dict[str, Any]) -> None:
        self.lines = lines

    async def call(self, *_: object, **__: object) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "14"}, "items": []}

    @asynccontextmanager
    async def watch(self, _: str, __: object, **___: object) -> AsyncIterator[AsyncIterator[bytes]]:
        async def read() -> AsyncIterator[bytes]:
            for each in self.lines:
                yield json.dumps(each).encode()
            await trio.sleep_forever()

        yield read()


async def test_c1_a_bookmark_alone_does_not_end_a_snapshot() -> None:
    """A server sends one every minute, also while it sends a large snapshot."""

    def bookmark(version: str, **annotations: str) -> dict[str, Any]:
        return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version, "annotations": annotations}}}

    end = bookmark("14", **{"k8s.io/initial-events-end": "true"})
    added = {"type": "ADDED", "object": disk(spec={"size": 1})}
    server: Any = Scripted(bookmark("11"), added, bookmark("13"), end)

    def made(object: dict[str, Any], _: bool) -> pb.Resource:
        return resource_of(DISK, object, types)

    watch = TypeWatch(server, Watched(DISK, Within()), made, "store")
    async with watch.items() as items:
        with trio.fail_after(5):
            chunk, last = await anext(items), await anext(items)
    assert isinstance(chunk, SnapshotChunk)
    assert isinstance(last, EndOfSnapshot)
    assert last.position.revision == 14


async def test_an_object_of_a_reply_is_shared_with_the_stream_unless_it_was_deleted() -> None:
    """What has left a selector comes in its old state, with the version of the write."""
    cluster = Cluster(Scripted(), app.registry, "default")  # type: ignore[arg-type]  # nothing is called
    before, after = disk(metadata={"labels": {"tier": "gold"}}), disk(metadata={"labels": {"tier": "iron"}})
    with cluster.watched(DISK, Within(), TypeWatch(Scripted(), Watched(DISK, Within()), lambda *_: None, "")):  # type: ignore[arg-type]  # nothing is called
        replied = cluster.resource(DISK, after)
        left = cluster.delivered(DISK, before, True)
        assert left.metadata == {"tier": "gold"}
        assert cluster.delivered(DISK, disk(), False) is replied


class Ending(Scripted):
    """A server that ends each watch at once, after its first snapshot."""

    watches = 0

    @asynccontextmanager
    async def watch(self, _: str, __: object, **___: object) -> AsyncIterator[AsyncIterator[bytes]]:
        self.watches += 1
        lines, self.lines = self.lines, ()

        async def read() -> AsyncIterator[bytes]:
            for each in lines:
                yield json.dumps(each).encode()

        yield read()


async def test_a_server_that_ends_each_watch_at_once_is_asked_less_and_less(autojump_clock: MockClock) -> None:
    assert autojump_clock.rate == 0
    end = {"metadata": {"resourceVersion": "14", "annotations": {"k8s.io/initial-events-end": "true"}}}
    server: Any = Ending({"type": "BOOKMARK", "object": end})
    watch = TypeWatch(server, Watched(DISK, Within()), lambda *_: pb.Resource(), "store")
    async with watch.items() as items:
        assert isinstance(await anext(items), EndOfSnapshot)
        with trio.move_on_after(60):
            await anext(items)
    assert 2 < server.watches < 40


def test_a_scope_by_what_is_no_label_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is no label"):
        DISK.within(metadata="annotation:app=web")


async def test_a_type_of_a_store_of_headway_is_refused(tmp_path: Path) -> None:
    """Its stream would be empty for ever."""
    mixed = headway.App("mixed")
    mixed.type("plain", "v1", "Team", Size)
    file = tmp_path / "config"
    file.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}], "
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    with pytest.raises(DeclarationError, match=r"plain\.v1\.Team is no type of Kubernetes"):
        async with kubernetes.open_cluster(mixed, kubeconfig=file):
            pass


def test_a_manifest_does_not_show_its_values() -> None:
    assert repr(NODE.new("n", {"data": {"password": "secret"}}).data) == "Manifest(data)"


def test_a_type_of_a_group_with_dots_is_explained() -> None:
    assert id_of(Ref(type="example.org.v1.Disk", name="a")).type == DISK.name


def test_json_that_python_does_not_read_is_no_payload() -> None:
    type = kubernetes.builtin(headway.App("json"), "v1", "ConfigMap")
    for data in (b"1" * 5000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b'"\xff"'):
        found = parsed(b'{"data": %s, "other": [1, "]"]}' % data)
        assert found["other"] == [1, "]"]
        stored = {"metadata": {"name": "a", "uid": "1", "resourceVersion": "1"}, **found}
        with pytest.raises(PayloadError):
            type.view(resource_of(type, stored, lambda *_: None)).data  # noqa: B018  # it is read
    for wrong in (b"", b"{", b"\xff"):
        with pytest.raises(ValueError, match=r"Expecting|expecting"):
            parsed(wrong)
