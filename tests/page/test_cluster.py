"""The page of a process on a cluster, with a model of the API server: what it reads, and what it leaves out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx

import headway
from headway import field, kubernetes
from headway.page import open_page
from headway.testing.kubernetes import ModelCluster, ModelServer
from tests.kubernetes.connected import Program
from tests.kubernetes.test_on_model import running
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
