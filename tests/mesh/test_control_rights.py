"""A proxy is one whose caller has the right to its workload's identity, over a connection that others cannot read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

import headway
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway.access import Access, Authorizer, Guarded, Policy, Rule, TokenSet, new_token
from headway.api import Call
from headway.engine import Extension, Host
from headway.errors import HeadwayError, InvalidArgument, PermissionDenied, Unauthenticated
from mesh.control import proxies
from mesh.control.connected import template_of
from mesh.control.rights import is_private
from mesh.types import PROXY_STATE_TEMPLATE
from mesh.xds import Kind
from mesh.xds import messages as m
from tests.mesh.test_control import Fake, made
from tests.mesh.xds.sidecar import Sidecar


class Peer:
    def __init__(self, address: Any) -> None:
        self._address = address

    def addr(self) -> Any:
        return self._address


@pytest.mark.parametrize(
    ("address", "encrypted", "expected"),
    [
        (("127.0.0.1", 4711), False, True),
        (("::1", 4711, 0, 0), False, True),
        ("/run/headway.sock", False, True),
        (("192.0.2.1", 4711), False, False),
        (("192.0.2.1", 4711), True, True),
        (None, False, False),
        (("a-name", 4711), False, False),
    ],
)
def test_keys_are_sent_over_tls_or_within_the_host(address: Any, encrypted: bool, expected: bool) -> None:
    call = Call()
    call.peer, call.encrypted = Peer(address), encrypted
    assert is_private(call) is expected


def test_xs2_node_names_its_template_and_tenancy() -> None:
    units = m.Struct.from_dict({"namespace": "shop"})
    assert template_of(m.Node(id="web-1", metadata=units)).key == ("default", "shop", "web-1")
    with pytest.raises(InvalidArgument, match="web_1"):
        template_of(m.Node(id="web_1"))


class OnNetwork(Call):
    """A call whose stream can be ended from outside."""

    encodes = True

    def __init__(self, token: str | None) -> None:
        super().__init__({} if token is None else {"x-consul-token": token})
        self.encrypted = True
        self.ended: list[HeadwayError] = []

    def end_after(self, seconds: float, error: HeadwayError) -> None:
        if seconds <= 0:
            self.ended.append(error)


class Guard:
    """A control plane with rules: a caller with the token `web` may be web, and no one else."""

    def __init__(self, host: Host, extension: Extension) -> None:
        rule = Rule(
            verbs=["write"], type="auth.v2beta1.WorkloadIdentity", partition="*", namespace="*", name_prefix="web"
        )
        self._policies = [Policy("web", [rule]), Policy("nothing", [])]
        self.web, web = new_token(["web"])
        self.other, other = new_token(["nothing"])
        self._tokens = [web, other]
        self.authorizer = Authorizer(Access(self._policies, TokenSet(self._tokens)))
        guarded = Guarded(
            lambda caller: extension.services[0](host, caller), self.authorizer, host.registry, serves_strangers=False
        )
        self._handler = guarded.__mapping__()[
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
        ]
        self.client = host.client

    async def delta(self, call: Call, stream: Any) -> None:
        assert self._handler.admit is not None
        async with self._handler.admit(call):
            await self._handler.func(call, stream)

    def revoke(self) -> None:
        """Take the token of `web` away."""
        self.authorizer.replace(Access(self._policies, TokenSet(self._tokens[1:])))

    async def publish(self, identity: str) -> None:
        await self.client.apply(PROXY_STATE_TEMPLATE.new("web", made(identity)))


@asynccontextmanager
async def guarded_plane() -> AsyncIterator[Guard]:
    hosts: list[Host] = []

    async def note(host: Host) -> None:
        await trio.lowlevel.checkpoint()
        hosts.append(host)

    types = headway.App("types")
    for each in (PROXY_STATE_TEMPLATE, SERVICE_ENDPOINTS, SERVICE, WORKLOAD):
        types.add_type(each)
    extension = proxies(Fake())
    async with headway.open_engine("memory:", types, extensions=[extension, Extension(openings=[note])]):
        yield Guard(hosts[0], extension)


async def test_xs3_caller_with_the_right_to_the_identity_is_served() -> None:
    async with guarded_plane() as it:
        await it.publish("web")
        async with Sidecar.connected(it, "web", OnNetwork(it.web)) as web:
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])


@pytest.mark.parametrize(
    ("token", "error"),
    [("web", None), ("other", PermissionDenied), ("hw_x", Unauthenticated), (None, PermissionDenied)],
)
async def test_xs3_others_are_refused_and_get_nothing(token: str | None, error: type[Exception] | None) -> None:
    """An unknown token is told apart from one without the right."""
    async with guarded_plane() as it:
        await it.publish("admin" if token == "web" else "web")
        text = it.web if token == "web" else it.other if token == "other" else token
        async with Sidecar.connected(it, "web", OnNetwork(text)) as web:
            with trio.fail_after(5):
                await web.ended.wait()
            assert type(web.error) is (error or PermissionDenied)
            assert web.responses == 0
            if token in ("web", "other"):
                assert "you may not write the WorkloadIdentity of this proxy" in str(web.error)


async def test_xs3_right_is_checked_when_the_template_comes_or_its_identity_changes() -> None:
    """The certificate of the new identity is not sent to a caller of the old one."""
    async with guarded_plane() as it:
        async with Sidecar.connected(it, "web", OnNetwork(it.other)) as early:
            await trio.testing.wait_all_tasks_blocked()
            await it.publish("web")
            with trio.fail_after(5):
                await early.ended.wait()
            assert type(early.error) is PermissionDenied
            assert early.responses == 0
        async with Sidecar.connected(it, "web", OnNetwork(it.web)) as web:
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])
            await it.publish("admin")
            with trio.fail_after(5):
                await web.ended.wait()
            assert type(web.error) is PermissionDenied
            assert list(web.has[Kind.SECRET]) == ["leaf:web", "roots:local"]


async def test_scenario_31_revoked_token_ends_the_stream() -> None:
    async with guarded_plane() as it:
        await it.publish("web")
        call = OnNetwork(it.web)
        async with Sidecar.connected(it, "web", call) as web:
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])
            it.revoke()
            assert [type(each) for each in call.ended] == [Unauthenticated]


async def test_keys_are_not_sent_over_a_network_in_clear() -> None:
    async with guarded_plane() as it:
        await it.publish("web")
        call = OnNetwork(it.web)
        call.encrypted, call.peer = False, Peer(("192.0.2.1", 4711))
        async with Sidecar.connected(it, "web", call) as web:
            with trio.fail_after(5):
                await web.ended.wait()
            assert "serve with TLS" in str(web.error)
            assert web.responses == 0
