"""The page of a process on a cluster, with a model of the API server: what it reads, and what it leaves out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx
import pytest

import headway
from headway import field, kubernetes
from headway.errors import NotFound
from headway.page import open_page
from headway.testing.kubernetes import ModelCluster, ModelServer
from tests.kubernetes.connected import GROUP, Program, Spec, Website
from tests.kubernetes.test_on_model import DEPLOYMENTS, MAPS, running
from tests.page.kit import PATIENCE, Visitor


@headway.message(name="page.cluster.Login")
class Login:
    data: dict[str, bytes] = field(1)
    texts: dict[str, str] = field(2)
    type: str = field(3)

    kubernetes_names: ClassVar = {"texts": "stringData"}


class Reading(ModelServer):
    """A server that remembers which lists it was asked for, and in which form."""

    def __init__(self) -> None:
        super().__init__(ModelCluster())
        self.lists: dict[str, str] = {}

    async def call(self, method: str, path: str, *, accept: str = "application/json", **options: Any) -> Any:
        if method == "GET":
            self.lists[path] = accept
        return await super().call(method, path, accept=accept, **options)


@asynccontextmanager
async def shown(server: ModelServer, program: Program, **options: Any) -> AsyncIterator[tuple[Any, Visitor]]:
    """Run a program with its page, and open the page."""
    async with (
        running(server, program) as engine,
        open_page(engine, program.app, http="127.0.0.1:0", **options) as address,
        httpx.AsyncClient(
            base_url=f"http://{address}", headers={"origin": f"http://{address}"}, timeout=PATIENCE
        ) as http,
    ):
        visitor = Visitor(http, address)
        await visitor.learn()
        yield engine.client, visitor


async def test_values_of_a_secret_with_a_message_class_are_left_out() -> None:
    program = Program()
    secret = kubernetes.builtin(program.app, "v1", "Secret", Login)
    name = "type=core.v1.Secret&partition=default&namespace=default&name=login"
    async with shown(Reading(), program, http_writes=True) as (client, visitor):
        made = secret.new("login", Login(data={"key": b"canary"}, type="Opaque"), namespace="default")
        await client.write(made)
        async with visitor.events(f"/page/resource?{name}") as events:
            assert (await events.next("resource"))["resource"]["data"] == {
                "data": {"key": "(redacted)"},
                "type": "Opaque",
            }
        path = "/page/api/core/v1/secret/login?namespace=default"
        answer = await visitor.change("PATCH", path, {"data": {"texts": {"other": "canary"}}})
        assert answer.json()["data"]["data"] == {"key": "(redacted)", "other": "(redacted)"}
        found = await visitor.http.get("/page/search?type=core.v1.Secret")
        assert [each["name"] for each in found.json()["rows"]] == ["login"]
        assert "canary" not in found.text
        assert "core.v1.Secret" in visitor.session["lacks"]


async def test_kind_that_is_not_registered_is_not_found() -> None:
    async with shown(Reading(), Program(), http_writes=True) as (_, visitor):
        answer = await visitor.change("DELETE", "/page/api/example.org/v1/absent/a")
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert "no type is registered at this path" in answer.json()["message"]


async def test_what_an_object_owns_is_found_by_its_metadata_alone() -> None:
    """A tab asks for it again and again. A program gets the payloads."""
    server, program = Reading(), Program()
    event = kubernetes.resource(program.app, GROUP, "v1", "Event", Website)
    for definition in kubernetes.crds(program.app):
        await server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=definition)
    async with shown(server, program) as (client, visitor):
        owner = await client.write(program.config_map.new("owner", {"data": {"big": "1"}}, namespace="default"))
        body = {"data": {"big": "2"}}
        await client.write(program.config_map.new("owned", body, namespace="default", owner=owner))
        await client.write(event.new("seen", Website(spec=Spec(image="web:1")), namespace="default", owner=owner))
        server.lists.clear()
        query = "type=core.v1.ConfigMap&partition=default&namespace=default&name=owner"
        found = (await visitor.http.get(f"/page/relatives?{query}")).json()
        assert [each["name"] for each in found["owned"]] == ["owned"]
        assert [each["data"] for each in found["events"]] == [{"spec": {"image": "web:1"}}]
        for path in (MAPS, DEPLOYMENTS):
            assert server.lists[path].startswith("application/json;as=PartialObjectMetadataList;")
        (owned,) = [each for each in await client.list_by_owner(owner) if each.type is program.config_map]
        assert owned.data.body == body


async def test_type_that_the_cluster_does_not_have_hides_no_relative_but_is_an_error_of_a_program() -> None:
    program = Program()
    kubernetes.builtin(program.app, "example.org/v1", "Absent")
    async with shown(Reading(), program) as (client, visitor):
        owner = await client.write(program.config_map.new("owner", namespace="default"))
        await client.write(program.config_map.new("owned", namespace="default", owner=owner))
        query = "type=core.v1.ConfigMap&partition=default&namespace=default&name=owner"
        found = (await visitor.http.get(f"/page/relatives?{query}")).json()
        assert [each["name"] for each in found["owned"]] == ["owned"]
        with pytest.raises(NotFound):
            await client.list_by_owner(owner)
