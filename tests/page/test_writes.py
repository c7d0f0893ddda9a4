"""The changes that the page may send: each with the rights of its caller, and no further."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.why import sentences
from tests.page import shop
from tests.page.kit import EVERYTHING, Shop, open_shop, rule, until


async def failing(running: Shop) -> None:
    """Store an order that fails, and wait until it does so."""
    await running.client.apply(shop.ORDER.new("lost", shop.Order(items=["tea"])))
    billing = running.engine.controllers["billing"]
    await until(lambda: any(each.id.name == "lost" for each in billing.status().not_done))


async def test_resource_is_created_changed_and_deleted() -> None:
    """The page uses the verbs of the JSON API, with its answers."""
    async with open_shop(writes=True) as running, running.visitor() as visitor:
        path = "/page/api/shop/v1/order/a"
        created = await visitor.change("PUT", path, {"data": {"customer": "ada"}})
        assert created.status_code == 200
        changed = await visitor.change("PATCH", path, {"data": {"items": ["tea"]}})
        assert (changed.status_code, changed.json()["data"]) == (200, {"customer": "ada", "items": ["tea"]})
        stale = await visitor.change("PATCH", f"{path}?version={created.json()['version']}", {"data": {"items": []}})
        assert stale.status_code == 409
        wrong = await visitor.change("PUT", path, {"data": {"customers": "ada"}})
        assert wrong.status_code == 400
        assert "customer" in wrong.json()["message"]
        assert (await visitor.change("DELETE", path)).status_code == 204
        await headway.until_gone(running.client, shop.ORDER, "a")


@headway.message(name="page.Login")
class Login:
    user: str = field(1)
    password: str = field(2, secret=True)


async def test_answers_to_changes_have_no_secrets() -> None:
    """A caller of the page may write a secret, and no answer has it. A merge keeps what it does not name."""
    app = headway.App("vault")
    login = app.type("vault", "v1", "Login", Login)
    async with open_shop(app=app, writes=True) as running, running.visitor() as visitor:
        path = "/page/api/vault/v1/login/core"
        body = {"data": {"user": "ada", "password": "canary-77e1"}}
        for answer in (
            await visitor.change("PUT", path, body),
            await visitor.change("PATCH", path, {"data": {"user": "grace"}}),
        ):
            assert answer.status_code == 200
            assert "canary-77e1" not in answer.text
        assert answer.json()["data"]["user"] == "grace"
        stored = await running.client.read(login, "core")
        assert (stored.data.user, stored.data.password) == ("grace", "canary-77e1")


async def test_controller_is_paused_and_resumed() -> None:
    """With its reason, as by `headway pause`."""
    async with open_shop(writes=True) as running, running.visitor() as visitor:
        billing = running.engine.controllers["billing"]
        body = {"controller": "shop/billing", "reason": "an audit"}
        assert (await visitor.change("POST", "/page/pause", body)).status_code == 204
        await until(lambda: billing.status().paused == "an audit")
        assert (await visitor.change("POST", "/page/resume", body)).status_code == 204
        await until(lambda: billing.status().paused is None)
        for wrong in ({"controller": "no slash"}, {"controller": 7}, {}, {"controller": "a/b", "reason": 7}):
            assert (await visitor.change("POST", "/page/pause", wrong)).status_code == 400, wrong


async def test_failed_key_is_retried_at_once() -> None:
    """Its delay of two minutes does not matter, and `why` says who asked."""
    async with open_shop(writes=True) as running, running.visitor() as visitor:
        await failing(running)
        billing = running.engine.controllers["billing"]

        def attempts() -> int:
            return max((each.attempts for each in billing.status().not_done), default=0)

        await until(lambda: billing.status().queue is not None and not billing.status().running)
        before = attempts()
        body = {"controller": "shop/billing", "type": "shop.v1.Order", "name": "lost"}
        answered = await visitor.change("POST", "/page/retry", body)
        assert (answered.status_code, answered.json()) == (200, {"running": False})
        await until(lambda: attempts() > before)
        why = await running.engine.why(shop.ORDER.id("lost"))
        assert any("an operator" in each for each in sentences(why))
        for wrong in ({"controller": "shop/depots"}, {"type": "shop.v1.Nothing"}, {"name": 7}, {"name": "A B"}):
            assert (await visitor.change("POST", "/page/retry", {**body, **wrong})).status_code == 400, wrong


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("reads", set[str]()),
        ("writes", {"put", "patch", "retry"}),
        ("deletes", {"delete"}),
        ("pauses", {"pause", "resume"}),
        ("all", {"put", "patch", "retry", "delete", "pause", "resume"}),
    ],
)
async def test_each_change_needs_its_right(name: str, allowed: set[str]) -> None:
    """A token of fewer rights changes nothing more, although the page may write."""
    rules = {
        "reads": [rule("view", "observe")],
        "writes": [rule("view", "write")],
        "deletes": [rule("delete")],
        "pauses": [rule("*", type="pause.v1.Pause")],
        "all": [EVERYTHING],
    }
    async with open_shop(writes=True, rules={name: rules[name]}) as running, running.visitor(name) as visitor:
        await running.client.apply(shop.ORDER.new("a", shop.Order(customer="ada")))
        billing = running.engine.controllers["billing"]
        await until(lambda: billing.status().phase == "running")
        retry = {"controller": "shop/billing", "type": "shop.v1.Order", "name": "a"}
        changes = {
            "put": ("PUT", "/page/api/shop/v1/order/b", {"data": {}}),
            "patch": ("PATCH", "/page/api/shop/v1/order/a", {"data": {"customer": "eve"}}),
            "retry": ("POST", "/page/retry", retry),
            "pause": ("POST", "/page/pause", {"controller": "shop/billing"}),
            "resume": ("POST", "/page/resume", {"controller": "shop/billing"}),
            "delete": ("DELETE", "/page/api/shop/v1/order/a", None),
        }
        for change, (method, path, body) in changes.items():
            answer = await visitor.change(method, path, body)
            assert (answer.status_code < 300) is (change in allowed), (change, answer.status_code, answer.text)
            if change not in allowed:
                assert answer.status_code == 403
