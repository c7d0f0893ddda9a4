"""The rights that the README names are enough for a registrar and a DNS server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

import headway
from catalog import app
from catalog.dns import Responder, Source
from catalog.dns.zone import INDEXES, WATCHES
from catalog.registrar import agent, definitions
from catalog.types import SERVICE
from headway.access import Access, Authorizer, Policy, Rule, new_token
from tests.catalog.dns.dns_kit import PATIENCE, poll, query
from tests.catalog.registrar.registrar_kit import HOST, local_service, write_file

_TYPES = {"dns": ("Service", "ServiceEndpoints", "Workload"), "registrar": ("Workload", "HealthStatus")}
_VERBS = {"dns": ("watch", "read"), "registrar": ("read", "list", "write", "delete")}


def policy(name: str) -> Policy:
    """Return the policy of a DNS server or a registrar."""
    rules = [
        Rule(verbs=_VERBS[name], type=f"catalog.v2beta1.{kind}", partition="*", namespace="*") for kind in _TYPES[name]
    ]
    if name == "registrar":
        rules.append(
            Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="registrars/")
        )
    return Policy(name, rules)


@pytest.mark.wide
async def test_registrar_and_dns_server_work_with_the_rights_of_the_readme(tmp_path: Path) -> None:
    tokens = {name: new_token([name]) for name in _TYPES}
    access = Authorizer(Access([policy(name) for name in _TYPES], [token for _, token in tokens.values()]))
    address = f"unix:{tmp_path}/catalog.sock"
    source = Source("consul")
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        await stack.enter_async_context(
            headway.open_engine("memory:", app, network=headway.Network([address], access=access))
        )
        service, nursery = await stack.enter_async_context(local_service())
        registering = await stack.enter_async_context(headway.connect(address, app, token=tokens["registrar"][0]))
        asking = await stack.enter_async_context(headway.connect(address, app, token=tokens["dns"][0]))
        file = write_file(tmp_path, service.port)

        async def register() -> None:
            await agent.run(registering, "host-1", definitions.load(file), ttl=5.0)

        opening = headway.open_cache(address, app, watches=WATCHES, indexes=INDEXES, token=tokens["dns"][0])
        nursery.start_soon(register)
        nursery.start_soon(source.follow, opening, lambda: asking.get(SERVICE, "default"))
        responder = Responder(source.zone)
        packed = bytes(map(int, HOST.split(".")))
        await poll(lambda: packed in (responder.answer(query("web-1.workload.consul")) or b""))
        with pytest.raises(headway.errors.PermissionDenied):
            await asking.delete(SERVICE.id("web"))
