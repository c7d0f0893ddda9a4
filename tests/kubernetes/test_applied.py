"""Applies that would change nothing make no call, also in a process that has applied nothing yet. In doubt, they do."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from headway.client import Client, SnapshotEnd
from headway.kubernetes import KubernetesType
from headway.kubernetes._applied import Applied
from headway.kubernetes._json import apply_text
from headway.kubernetes._managers import changes_nothing
from headway.kubernetes._objects import object_of
from headway.kubernetes._open import open_channel
from headway.kubernetes._verbs import Verb
from headway.resource import resource_key
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import Program, connected
from tests.kubernetes.gates import GatedServer

MANAGER = "sites/web"
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"example.org/pages": "7"}},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "web:1",
                "args": ["--port", "80"],
                "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "resources": {"requests": {"cpu": "100m"}},
                "volumeMounts": [{"name": "pages", "mountPath": "/srv"}],
            },
            {"name": "log", "image": "log:1"},
        ],
        "volumes": [{"name": "pages", "emptyDir": {}}],
    },
}
BODY = {"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}}


def _first(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["template"]["spec"]["containers"][0]
    return found


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a value": lambda body: _first(body).update(image="web:2"),
    "an integer": lambda body: body["spec"].update(replicas=3),
    "a field more": lambda body: _first(body).update(command=["web"]),
    "a default more": lambda body: body["spec"].update(revisionHistoryLimit=10),
    "a field less": lambda body: _first(body).pop("args"),
    "an item less": lambda body: _first(body)["env"].pop(),
    "an item more": lambda body: _first(body)["env"].append({"name": "C", "value": "3"}),
    "an item's value": lambda body: _first(body)["env"][0].update(value="3"),
    "an item's key": lambda body: _first(body)["ports"][0].update(protocol="UDP"),
    "a key that is given": lambda body: _first(body)["ports"][0].update(protocol="TCP"),
    "another order": lambda body: body["spec"]["template"]["spec"]["containers"].reverse(),
    "an atomic list": lambda body: _first(body)["args"].reverse(),
    "a quantity in another form": lambda body: _first(body)["resources"]["requests"].update(cpu="0.1"),
    "a label less": lambda body: body["spec"]["template"]["metadata"].pop("annotations"),
    "a null": lambda body: body["spec"].update(paused=None),
}


@pytest.mark.kube
async def test_the_same_apply_of_another_process_makes_no_call(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """What it skips is what the API server says to be no change. What it would change, it sends."""
    program = Program()
    type = program.deployment
    async with connected(kube, program, namespace, tmp_path) as (first, server, _):
        owner = await first.write(program.config_map.new("owner", namespace=namespace))
        given = {"app": "web", "annotation:example.org/a": "b"}
        wanted = type.new("web", BODY, namespace=namespace, metadata=given, owner=owner)
        made = await first.apply(wanted, manager=MANAGER)

        async def written(changed: Any) -> tuple[int, str]:
            """Return the number of writes of an apply by another process, and the version after it."""
            gated = GatedServer(server)
            async with open_channel(gated, program.app.registry, namespace) as channel:  # type: ignore[arg-type]  # the same methods
                client = Client(channel, program.app.registry)
                async with client.watch(type.within(namespace=namespace)) as events:
                    with trio.fail_after(20):
                        while not isinstance(await anext(events), SnapshotEnd):
                            pass
                    stored = await client.apply(changed, manager=MANAGER, force=True)
            return sum(method != "GET" and method != "WATCH" for method, _ in gated.calls), stored.version

        assert await written(wanted) == (0, made.version)
        params = {"fieldManager": MANAGER, "force": "true"}
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
        text = apply_text(object_of(type, wanted.message()))
        same = await server.call("PATCH", path, params=params, body=text, content_type="application/apply-patch+yaml")
        assert same["metadata"]["resourceVersion"] == made.version
        for name, change in CHANGES.items():
            body = copy.deepcopy(BODY)
            change(body)
            changed = type.new("web", body, namespace=namespace, metadata=given, owner=owner)
            writes, _ = await written(changed)
            assert writes, name
            await written(wanted)
        changes = ({"app": "web"}, {**given, "more": "label"}, {**given, "app": "other"})
        for new_owner, metadata in ((None, given), *((owner, each) for each in changes)):
            writes, _ = await written(type.new("web", BODY, namespace=namespace, metadata=metadata, owner=new_owner))
            assert writes, metadata
            await written(wanted)
        # Another manager changes a field, and takes it over.
        other = copy.deepcopy(BODY)
        other["spec"] = {"replicas": 5, "selector": BODY["spec"]["selector"], "template": TEMPLATE}
        await first.apply(type.new("web", other, namespace=namespace), manager="other/one", force=True)
        writes, _ = await written(wanted)
        assert writes
        assert (await first.read(type, "web", namespace=namespace)).data["spec"]["replicas"] == 2


@asynccontextmanager
async def watching(
    kube: KubeServer, namespace: str, folder: Path, *, held: bool = False
) -> AsyncIterator[tuple[Client, Client, Any, KubernetesType[Any]]]:
    """Open a client whose stream of ConfigMaps is primed, and perhaps held then, beside the one of a person."""
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, folder) as (person, server, _):
        gated: Any = GatedServer(server)
        gated.gate = trio.Event() if held else None
        async with open_channel(gated, program.app.registry, namespace) as channel:
            client = Client(channel, program.app.registry)
            async with client.watch(type.within(namespace=namespace)) as events:
                with trio.fail_after(20):
                    while not isinstance(await anext(events), SnapshotEnd):
                        pass
                gated.calls.clear()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_read_on, events)
                    yield client, person, gated, type
                    nursery.cancel_scope.cancel()


async def _read_on(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass


@pytest.mark.kube
async def test_what_is_changed_during_its_creation_is_applied_again(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """A creation is two writes. What somebody writes between them is not what was applied."""
    async with watching(kube, namespace, tmp_path) as (client, person, gated, type):

        async def spoil() -> None:
            gated.before_patches = None
            found = await person.read(type, "web", namespace=namespace)
            found.data["data"]["a"] = "spoilt"
            await person.write(found)

        gated.before_patches = spoil
        wanted = type.new("web", {"data": {"a": "1"}}, namespace=namespace)
        await client.apply(wanted, force=True)
        assert (await person.read(type, "web", namespace=namespace)).data["data"] == {"a": "spoilt"}
        await client.apply(wanted, force=True)
        assert (await person.read(type, "web", namespace=namespace)).data["data"] == {"a": "1"}


@pytest.mark.kube
async def test_a_field_that_others_own_now_is_applied_again(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """Its value is as it was applied, but the server no longer counts it as applied."""
    async with watching(kube, namespace, tmp_path) as (client, person, gated, type):
        wanted = type.new("web", {"data": {"a": "1"}}, namespace=namespace)
        await client.apply(wanted, manager=MANAGER, force=True)
        await client.apply(wanted, manager=MANAGER, force=True)
        gated.calls.clear()
        await client.apply(wanted, manager=MANAGER, force=True)
        assert gated.calls == []
        for value in ("2", "1"):
            found = await person.read(type, "web", namespace=namespace)
            found.data["data"]["a"] = value
            await person.write(found)
        with trio.fail_after(20):
            while not any(method == "PATCH" for method, _ in gated.calls):
                # Until the stream has brought the change.
                await client.apply(wanted, manager=MANAGER, force=True)
        stored = await gated.call("GET", f"/api/v1/namespaces/{namespace}/configmaps/web")
        [mine] = [each for each in stored["metadata"]["managedFields"] if each["manager"] == MANAGER]
        assert "f:a" in mine["fieldsV1"]["f:data"]


@pytest.mark.kube
async def test_a_creation_reads_nothing_first(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A primed stream has no object of the name. If it is behind, the API server refuses the creation."""
    async with watching(kube, namespace, tmp_path) as (client, _, gated, type):
        await client.apply(type.new("web", {"data": {"a": "1"}}, namespace=namespace))
        assert [method for method, _ in gated.calls] == ["POST", "PATCH"]
        await client.write(type.new("written", {"data": {"a": "1"}}, namespace=namespace))
        assert [method for method, _ in gated.calls[2:]] == ["POST"]
    async with watching(kube, namespace, tmp_path, held=True) as (client, person, gated, type):
        await person.apply(type.new("other", {"data": {"a": "1"}}, namespace=namespace))
        stored = await client.apply(type.new("other", {"data": {"a": "2"}}, namespace=namespace), force=True)
        assert stored.data["data"] == {"a": "2"}
        assert [method for method, _ in gated.calls] == ["POST", "GET", "PATCH"]


ITEM: dict[str, Any] = {".": {}, "f:name": {}}
KEYED: dict[str, Any] = {'k:{"name":"a"}': {**ITEM, "f:value": {}}, 'k:{"name":"b"}': ITEM}
A, B = {"name": "a", "value": "1"}, {"name": "b"}


@pytest.mark.parametrize(
    ("fields", "wanted", "there", "same"),
    [
        ({}, 1, 1, True),
        ({}, 1, True, False),
        ({}, {"a": 1}, {"a": 1, "b": 2}, False),
        ({"f:a": {}}, {"a": 1}, {"a": 1, "b": 2}, True),
        ({"f:a": {}}, {"a": 1}, {"b": 2}, False),
        ({"f:a": {}}, {"a": {}}, {}, True),
        ({"f:a": {}}, {"a": []}, {}, False),
        ({"f:a": {"f:b": {}}}, {"a": {"b": 1}}, {}, False),
        ({"f:a": {}}, {}, {"a": 1}, False),
        ({"f:a": {}, "f:b": {}}, {"a": 1}, {"a": 1, "b": 2}, False),
        ({"f:a": {}}, {"a": 1, "b": 2}, {"a": 1, "b": 2}, False),
        ({"f:a": {}}, ["a"], {"a": 1}, False),
        (KEYED, [A, B], [{"name": "c"}, A, {**B, "value": "9"}], True),
        (KEYED, [A, B], [B, A], False),
        (KEYED, [A], [A, B], False),
        (KEYED, [A, B], [A], False),
        (KEYED, [A, B], [A, A, B], False),
        (KEYED, [A, A], [A, B], False),
        (KEYED, A, A, False),
        ({'k:{"name":"b"}': {"f:name": {}}}, [B], [B], False),
        ({'k:{"name":"b"}': {}}, [B], [A, B], True),
        ({'k:{"name":"b"}': {}}, [B], [{**B, "value": "1"}], False),
        ({'k:{"name":"b"}': {".": {}}}, [{**B, "value": "1"}], [B], False),
        # The protocol of a port that is there is never left out.
        ({'k:{"protocol":"TCP"}': {}}, [{"protocol": "TCP"}], [{}, {"protocol": "TCP"}], True),
        ({'v:"x"': {}, 'v:"y"': {}}, ["x", "y"], ["w", "x", "y"], True),
        ({'v:"x"': {}, 'v:"y"': {}}, ["y", "x"], ["x", "y"], False),
        ({"v:1": {}}, [1], [True], False),
        ({"i:0": {}}, ["x"], ["x"], False),
    ],
)
def test_an_apply_that_changes_nothing(fields: dict[str, Any], wanted: Any, there: Any, same: bool) -> None:
    assert changes_nothing(fields, wanted, there) is same


@pytest.mark.parametrize(
    ("applied", "there", "same"),
    [
        ({"data": {"a": "1"}}, {"data": {"a": "1"}, "status": {"s": 2}}, True),
        ({"data": {"a": True}}, {"data": {"a": 1}}, False),
        ({"data": {"a": 1}, "status": {"s": 1}}, {"data": {"a": 1}, "status": {"s": 9}}, False),
    ],
)
def test_last_apply_is_compared_with_what_is_there(applied: Any, there: Any, same: bool) -> None:
    """By the text of the values, because 1 is True in Python, and with the status if it was applied."""
    type, verb, known = Program().config_map, Verb("apply", MANAGER), Applied()
    wanted = type.new("web", applied, namespace="default").message()
    stored = type.new("web", {"status": {"s": 1}, **applied}, namespace="default").message()
    found = type.new("web", {"status": {"s": 1}, **there}, namespace="default").message()
    stored.version, found.version = "1", "2"
    name = type.name, resource_key(wanted)
    known.note(name, verb, object_of(type, wanted), stored)
    assert known.holds(type, name, verb, object_of(type, wanted), found) is same


def test_objects_of_one_form_share_what_is_kept_of_them() -> None:
    """Their owners differ, whose uids are keys of owned fields."""
    type, applied = Program().config_map, Applied()
    for uid in ("6b3a", "7c4b"):
        fields: dict[str, Any] = {"f:metadata": {"f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {}}}}
        meta = {"ownerReferences": [{"uid": uid}], "managedFields": [{**OWNED, "fieldsV1": fields}]}
        applied.saw(type, (type.name, ("", "", uid)), {**meta, "resourceVersion": "1"}, deleted=False)
    assert len(applied._texts) == 1


OWNED: dict[str, Any] = {
    "manager": MANAGER,
    "operation": "Apply",
    "apiVersion": "v1",
    "fieldsV1": {"f:data": {"f:a": {}}},
}


@pytest.mark.parametrize(
    ("managed", "version", "same"),
    [
        ([OWNED], "1", True),
        ([OWNED, {**OWNED, "subresource": "status"}, {**OWNED, "manager": "kubectl"}], "1", True),
        ([OWNED], "2", False),
        ([OWNED, {**OWNED, "operation": "Update"}], "1", False),
        ([{**OWNED, "operation": "Update"}], "1", False),
        ([{**OWNED, "apiVersion": "v2"}], "1", False),
        ([{**OWNED, "manager": "sites/other"}], "1", False),
        ([{**OWNED, "subresource": "status"}], "1", False),
        ([], "1", False),
    ],
)
def test_only_what_is_owned_by_an_apply_at_the_known_version_counts(
    managed: list[dict[str, Any]], version: str, same: bool
) -> None:
    type, verb, applied = Program().config_map, Verb("apply", MANAGER), Applied()
    known = type.new("web", {"data": {"a": "1"}}, namespace="default").message()
    known.version = version
    name = type.name, resource_key(known)
    applied.saw(type, name, {"resourceVersion": "1", "managedFields": managed}, deleted=False)
    assert applied.holds(type, name, verb, object_of(type, known), known) is same
    applied.saw(type, name, {"resourceVersion": "1", "managedFields": managed}, deleted=True)
    # What it has found once, it remembers as an apply of its own.
    assert applied.holds(type, name, verb, object_of(type, known), known) is same
