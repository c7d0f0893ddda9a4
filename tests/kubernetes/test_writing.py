"""Writes of objects on a real API server: preconditions, ownership, subresources, and what a write returns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway import kubernetes
from headway.client import Client, Deleted, SnapshotEnd
from headway.errors import (
    AlreadyExists,
    Conflict,
    DeclarationError,
    FieldConflict,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from headway.kubernetes._open import open_channel
from headway.resource import ConditionState, ResourceId, pb
from tests.helpers.kube_server import BOB, KubeServer
from tests.kubernetes.connected import GROUP, Program, Spec, Website, connected, deployment, install_crd, wait_served
from tests.kubernetes.gates import GatedServer


async def test_an_object_is_read_as_it_was_written(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        metadata = {"app": "web", "annotation:example.org/note": "kept", "finalizers": "example.org/dns"}
        made = program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace, metadata=metadata)
        written = await client.write(made)
        assert written.data["data"] == {"a": "1"}
        found = await client.read(program.config_map, "web", namespace=namespace)
        assert found.metadata == metadata
        assert found.finalizers == {"example.org/dns"}
        assert (found.uid, found.version) == (written.uid, written.version)
        assert int(found.generation) == int(found.version)


async def test_a_second_creation_is_refused(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace)
        await client.create(made)
        with pytest.raises(AlreadyExists):
            await client.create(made)


async def test_a_write_over_a_changed_object_is_refused(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        first = await client.write(program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace))
        other = first.copy()
        other.data["data"]["a"] = "2"
        await client.write(other)
        first.data["data"]["a"] = "3"
        with pytest.raises(Conflict):
            await client.write(first)
        assert (await client.read(program.config_map, first.id)).data["data"] == {"a": "2"}


async def test_a_write_over_another_incarnation_is_refused(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        first = await client.write(program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace))
        await client.delete(first)
        with pytest.raises(Conflict):
            await client.write(first)
        again = await client.write(program.config_map.new("web", {"data": {"a": "2"}}, namespace=namespace))
        assert again.uid != first.uid
        with pytest.raises(Conflict):
            await client.write(first)
        assert await client.delete(first) is None
        assert await client.get(program.config_map, again.id) is not None


async def test_a_write_of_a_deleted_object_does_not_bring_it_back(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """An API server creates some kinds by a PUT, even with a version, unless it has the uid."""
    program = Program()
    lease = kubernetes.builtin(program.app, "coordination.k8s.io/v1", "Lease")
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = await client.write(lease.new("web", {"spec": {"holderIdentity": "one"}}, namespace=namespace))
        await client.delete(made)
        with pytest.raises(Conflict):
            await client.write(made)
        assert await client.get(lease, made.id) is None


async def test_a_write_without_a_version_replaces(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        await client.write(program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace))
        await client.write(program.config_map.new("web", {"data": {"b": "2"}}, namespace=namespace))
        found = await client.read(program.config_map, "web", namespace=namespace)
        assert found.data["data"] == {"b": "2"}


class Deleting(GatedServer):
    """An API server on which somebody deletes the object just before the first PUT."""

    async def call(self, method: str, path: str, **options: Any) -> Any:
        if method == "PUT" and not any(each == "DELETE" for each, _ in self.calls):
            await super().call("DELETE", path)
        return await super().call(method, path, **options)


async def test_a_write_without_a_version_creates_what_is_deleted_meanwhile(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        first = await client.write(type.new("web", {"data": {"a": "1"}}, namespace=namespace))
        deleting: Any = Deleting(server)
        async with open_channel(deleting, program.app.registry, namespace) as channel:
            other = Client(channel, program.app.registry)
            again = await other.write(type.new("web", {"data": {"b": "2"}}, namespace=namespace))
        assert again.uid != first.uid
        assert again.data["data"] == {"b": "2"}


async def test_the_same_apply_makes_no_call(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    type = program.deployment
    async with connected(kube, program, namespace, tmp_path) as (_, server, _):
        gated: Any = GatedServer(server)
        async with open_channel(gated, program.app.registry, namespace) as channel:
            client = Client(channel, program.app.registry)
            async with client.watch(type.within(namespace=namespace)) as events:
                while not isinstance(await anext(events), SnapshotEnd):
                    pass
                wanted = type.new("web", deployment(), namespace=namespace)
                made = await client.apply(wanted)
                before = len(gated.calls)
                assert (await client.apply(wanted)).version == made.version
                assert len(gated.calls) == before
                await client.apply(type.new("web", deployment(2), namespace=namespace))
                assert len(gated.calls) > before


async def test_the_same_apply_by_a_new_process_changes_nothing(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """An empty mapping is not stored, but an apply owns it, also after a creation."""
    program = Program()
    template = deployment()["spec"]["template"]
    template["spec"] = {**template["spec"], "nodeSelector": {}, "volumes": [{"name": "a", "emptyDir": {}}]}
    template["metadata"]["annotations"] = {}
    for wanted in (
        program.config_map.new("web", {"data": {}}, namespace=namespace, metadata={"app": "web"}),
        program.deployment.new("web", deployment(template=template, strategy={}), namespace=namespace),
    ):
        versions = set()
        for _ in range(3):
            async with connected(kube, program, namespace, tmp_path) as (client, _, _):
                versions.add((await client.apply(wanted)).version)
        assert len(versions) == 1, wanted.id


async def test_a_deletion_waits_for_finalizers(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = program.config_map.new("web", namespace=namespace, metadata={"finalizers": "example.org/dns"})
        written = await client.write(made)
        left = await client.delete(written)
        assert left is not None
        assert left.is_deleting
        left.finalizers = set()
        gone = await client.write(left)
        assert gone.version == ""
        assert await client.get(program.config_map, written.id) is None
        assert await client.delete(written) is None


async def test_a_pod_in_its_grace_period_is_not_gone(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """Only a kubelet ends it. Its last finalizer is gone, and it is not."""
    program = Program()
    pod = kubernetes.builtin(program.app, "v1", "Pod")
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "web:1"}]}
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        held = {"finalizers": "example.org/dns"}
        made = await client.write(pod.new("web", {"spec": spec}, namespace=namespace, metadata=held))
        left = await client.delete(made)
        assert left is not None
        left.finalizers = set()
        waiting = await client.write(left)
        assert waiting.is_deleting
        assert waiting.version == (await client.read(pod, made.id)).version


async def test_a_refusal_is_not_its_own_cause(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        with pytest.raises(InvalidArgument) as caught:
            await client.write(program.deployment.new("web", {"spec": {"replicas": -1}}, namespace=namespace))
    seen: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        assert all(error is not each for each in seen)
        seen.append(error)
        error = error.__cause__


async def test_an_apply_owns_its_fields(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """Another manager's field is a conflict that names both, and what an apply leaves out is removed."""
    program = Program()
    type = program.deployment
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        first = type.new("web", deployment(1, paused=True), namespace=namespace, metadata={"tier": "gold"})
        made = await client.apply(first, manager="one")
        assert made.data["spec"]["progressDeadlineSeconds"] == 600
        same = await client.apply(first, manager="one")
        assert same.version == made.version
        with pytest.raises(FieldConflict) as caught:
            await client.apply(type.new("web", deployment(2), namespace=namespace), manager="two")
        assert caught.value.conflicts == (("one", "spec.replicas"),)
        less = await client.apply(type.new("web", deployment(1), namespace=namespace), manager="one")
        assert less.metadata == {}
        assert not less.data["spec"].get("paused")
        taken = await client.apply(type.new("web", deployment(2), namespace=namespace), manager="two", force=True)
        assert taken.data["spec"]["replicas"] == 2


async def test_an_apply_does_not_bring_back_another_incarnation(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        first = await client.apply(program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace))
        await client.delete(first)
        with pytest.raises((Conflict, NotFound)):
            await client.apply(first)
        assert await client.get(program.config_map, "web", namespace=namespace) is None


async def test_fields_are_refused_in_an_apply(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        with pytest.raises(InvalidArgument, match="leave out the others"):
            await client.apply(program.config_map.new("web", namespace=namespace), fields=["data"])


async def test_status_and_conditions_of_a_custom_resource(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    install_crd(kube)
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        await wait_served(server)
        site = program.website.new("blog", Website(spec=Spec(image="web:1", replicas=2)), namespace=namespace)
        made = await client.write(site)
        condition = pb.Condition(type="Ready", state=ConditionState.TRUE, reason="Up", message="all are up")
        marked = await client.write_status(made, "sites", [condition])
        assert marked.generation == made.generation
        assert [each.type for each in marked.status["sites"].conditions] == ["Ready"]
        assert marked.status["sites"].observed_generation == made.generation
        same = await client.write_status(marked, "sites", [condition])
        assert same.version == marked.version
        other = pb.Condition(type="Billed", state=ConditionState.FALSE, reason="Late", message="")
        both = await client.write_status(same, "billing", [other])
        assert {key: [each.type for each in status.conditions] for key, status in both.status.items()} == {
            "sites": ["Ready"],
            "billing": ["Billed"],
        }
        both.data.status.ready = 1
        ready = await kubernetes.update_status(client, both)
        assert ready.data.status.ready == 1
        assert set(ready.status) == {"sites", "billing"}
        assert ready.data.spec.replicas == 2
        none = await client.write_status(ready, "sites", [])
        assert set(none.status) == {"billing"}
        with pytest.raises(Conflict):
            await kubernetes.update_status(client, ready)


async def test_unknown_fields_survive_a_write(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    install_crd(kube)
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        await wait_served(server)
        path = program.website.path(namespace)
        meta = {"name": "blog", "annotations": {"example.org/a": "b"}}
        object = {"metadata": meta, "spec": {"image": "web:1", "other": "kept"}}
        object |= {"apiVersion": program.website.api_version, "kind": "Website"}
        await server.call("POST", path, body=object)
        site = await client.read(program.website, "blog", namespace=namespace)
        site.data.spec.image = "web:2"
        await client.write(site)
        stored = await server.call("GET", f"{path}/blog")
        assert stored["spec"] == {"image": "web:2", "other": "kept"}
        assert stored["metadata"]["annotations"] == {"example.org/a": "b"}


async def test_an_apply_that_does_not_fit_the_schema_is_refused(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """Neither stored in part, nor of an unknown outcome."""
    program = Program()
    install_crd(kube)
    wrong = kubernetes.builtin(headway.App("wrong"), f"{GROUP}/v1", "Website")
    program.app.registry._types.pop(program.website.name)
    program.app.add_type(wrong)
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        await wait_served(server)
        made = await client.apply(wrong.new("blog", {"spec": {"image": "web:1"}}, namespace=namespace))
        for spec in ({"replicas": "one"}, {"colour": "red"}):
            with pytest.raises(InvalidArgument):
                await client.apply(wrong.new("blog", {"spec": spec}, namespace=namespace))
            with pytest.raises(InvalidArgument):
                await client.create(wrong.new("other", {"spec": spec}, namespace=namespace))
        assert (await client.read(wrong, made.id)).version == made.version


async def test_scale(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = await client.apply(program.deployment.new("web", deployment(1), namespace=namespace))
        scaled = await kubernetes.scale(client, made, 3)
        assert scaled.data["spec"]["replicas"] == 3
        with pytest.raises(Conflict):
            await kubernetes.scale(client, made, 4)
        with pytest.raises(InvalidArgument, match="at least 0"):
            await kubernetes.scale(client, scaled, -1)


async def test_owners(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """The owner is the reference that is the controller. An owner without a uid is the incarnation that exists."""
    program = Program()
    install_crd(kube)
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        await wait_served(server)
        owner = await client.write(program.config_map.new("owner", namespace=namespace))
        child = program.config_map.new("child", namespace=namespace, owner=owner.id.without_uid())
        made = await client.write(child)
        assert made.owner == owner.id
        assert ":owners" not in made.metadata
        assert [each.name for each in await client.list_by_owner(owner)] == ["child"]
        kept = await client.read(program.config_map, made.id)
        kept.metadata["color"] = "red"
        assert (await client.write(kept)).owner == owner.id


async def test_a_validation_stores_nothing(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        wanted = program.deployment.new("web", deployment(1), namespace=namespace)
        seen = await client.validate(wanted)
        assert seen.data["spec"]["progressDeadlineSeconds"] == 600
        assert await client.get(program.deployment, wanted.id) is None
        bad = program.deployment.new("web", {"spec": {"replicas": -1}}, namespace=namespace)
        with pytest.raises(InvalidArgument, match=r"spec\.replicas"):
            await client.validate(bad)


async def test_a_refusal_names_the_rule_that_grants_the_call(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    with pytest.raises(PermissionDenied, match=r'resources: \["namespaces"\]'):
        async with connected(kube, program, namespace, tmp_path, BOB):
            pass


async def test_lists(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        for number in range(7):
            tier = "gold" if number % 2 else "iron"
            await client.write(type.new(f"m{number}", namespace=namespace, metadata={"tier": tier}))
        gold = type.within(namespace=namespace, metadata="tier=gold")
        assert [each.name for each in await client.list(gold)] == ["m1", "m3", "m5"]
        prefixed = await client.list(type, namespace=namespace, name_prefix="m1")
        assert [each.name for each in prefixed] == ["m1"]
        pages = [[each.name for each in page] async for page in client.pages(type, namespace=namespace, size=3)]
        assert pages == [["m0", "m1", "m2"], ["m3", "m4", "m5"], ["m6"]]


async def test_an_own_write_that_leaves_a_scope_is_deleted_in_its_old_state(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = Program()
    gold = program.config_map.within(namespace=namespace, metadata="tier=gold")
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = await client.write(program.config_map.new("web", namespace=namespace, metadata={"tier": "gold"}))
        with trio.fail_after(20):
            async with client.watch(gold) as events:
                while not isinstance(await anext(events), SnapshotEnd):
                    pass
                made.metadata["tier"] = "iron"
                await client.write(made)
                event = await anext(events)
        assert isinstance(event, Deleted)
        assert event.resource.metadata == {"tier": "gold"}


def test_names_of_types_and_objects() -> None:
    app = headway.App("names")
    with pytest.raises(DeclarationError, match=r"group 'Example_org'"):
        kubernetes.resource(app, "Example_org", "v1", "Website", Website)
    with pytest.raises(DeclarationError, match="version 'v'"):
        kubernetes.builtin(app, "apps/v", "Deployment")
    ingress = kubernetes.builtin(app, "networking.k8s.io/v1", "Ingress")
    assert ingress.path("shop", "web", "status") == "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web/status"
    role = kubernetes.builtin(app, "rbac.authorization.k8s.io/v1", "ClusterRole")
    assert role.path("", role.id("system:basic-user").name).endswith("/clusterroles/system:basic-user")
    policy = kubernetes.builtin(app, "networking.k8s.io/v1", "NetworkPolicy")
    assert policy.plural == "networkpolicies"
    assert isinstance(ingress.id("kube-root-ca.crt"), ResourceId)
    with pytest.raises(InvalidArgument, match="hyphens and dots"):
        ingress.id("Web_1")
    with pytest.raises(InvalidArgument, match="new"):
        ingress.new("web", {"metadata": {}})


async def test_a_deletion_of_what_no_stream_has_delivered_yet(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A stream that is late has an earlier incarnation. The one that the caller has read is deleted."""
    program = Program()
    scope = program.config_map.within(namespace=namespace)
    async with connected(kube, program, namespace, tmp_path) as (person, server, _):
        first = await person.write(program.config_map.new("web", namespace=namespace))
        gated = GatedServer(server)
        gated.gate = trio.Event()
        async with (
            open_channel(gated, program.app.registry, namespace) as channel,  # type: ignore[arg-type]  # the same methods
            Client(channel, program.app.registry).watch(scope) as events,
        ):
            with trio.fail_after(20):
                while not isinstance(await anext(events), SnapshotEnd):
                    pass
            client = Client(channel, program.app.registry)
            for delete in (client.delete, partial(kubernetes.delete, client, propagation="Background")):
                await person.delete(first)
                second = await person.write(program.config_map.new("web", namespace=namespace))
                assert await delete(second) is None
                assert await person.get(program.config_map, second.id) is None
                first = second


async def test_dependents_of_an_owner_in_a_namespace_are_listed(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = Program()
    kubernetes.builtin(program.app, "v1", "Node")
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        owner = await client.write(program.config_map.new("owner", namespace=namespace))
        owned = await client.write(program.config_map.new("owned", namespace=namespace, owner=owner))
        assert [each.id for each in await client.list_by_owner(owner)] == [owned.id]


async def test_names_of_roles_are_freer(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    role = kubernetes.builtin(program.app, "rbac.authorization.k8s.io/v1", "Role")
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = await client.write(role.new("My_Role:x", {"rules": []}, namespace=namespace))
        assert (await client.read(role, "My_Role:x", namespace=namespace)).uid == made.uid
        assert await client.delete(made) is None
    for name in ("..", "a/b", "a%2fb", ""):
        with pytest.raises(InvalidArgument, match="name"):
            role.id(name)
