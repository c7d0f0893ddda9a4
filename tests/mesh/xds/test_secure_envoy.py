"""A stock Envoy connects over TLS with a token, and is served within the rights of that token."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio
import trustme

import headway
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD, WORKLOAD_IDENTITY
from headway.access import Access, Authorizer, Policy, Rule, TokenSet, new_token
from headway.rpc import server_tls
from mesh.certificates import in_memory
from mesh.control import Proxies, proxies
from mesh.messages import ProxyStateTemplate
from mesh.messages import proxy_state as p
from mesh.types import PROXY_STATE_TEMPLATE
from tests.helpers.secret_files import write_secret
from tests.mesh.xds.real_envoy import NO_ENVOY, backend, find_envoy, free_port, running, until, until_true
from tests.mesh.xds.state import LOCAL, allowing, server
from tests.mesh.xds.test_translated_envoy import echo

pytestmark = [pytest.mark.envoy, pytest.mark.skipif(find_envoy() is None, reason=NO_ENVOY)]
RULE = Rule(verbs=["write"], type="auth.v2beta1.WorkloadIdentity", partition="*", namespace="*", name_prefix="api")
POLICIES = [Policy("api", [RULE]), Policy("nothing", [])]


def template(port: int, app: int) -> ProxyStateTemplate:
    state = server("api", port, tcp=app, permitted=allowing())
    # Plain text, so that the test needs no second proxy.
    state.listeners[0].routers = [p.Router(l4=p.L4Destination(cluster=p.DestinationCluster(name="local_app:tcp")))]
    state.identity = WORKLOAD_IDENTITY.id("api").reference()
    made = ProxyStateTemplate(proxy_state=state)
    made.required_leaf_certificates["api"] = p.LeafCertificateRef(name="api", namespace="default", partition="default")
    made.required_trust_bundles[LOCAL] = p.TrustBundleRef(peer=LOCAL, trust_domain="cluster.local")
    return made


async def answers(port: int) -> bool:
    try:
        return await echo(port) != b""
    except OSError:
        return False


async def until_answered(port: int) -> None:
    """Ask until there is an answer. Envoy offers nothing else to wait for."""
    with trio.fail_after(20):
        while True:
            if await answers(port):
                return
            await trio.sleep(0.01)


async def test_envoy_with_a_token_is_served_over_tls_until_the_token_is_revoked(tmp_path: Path) -> None:
    """One without the right gets nothing, and neither does one that expects another server."""
    authority, file, ca = trustme.CA(), tmp_path / "server.pem", tmp_path / "ca.pem"
    write_secret(file, authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    ca.write_bytes(authority.cert_pem.bytes())
    text, token = new_token(["api"])
    other, stranger = new_token(["nothing"])
    authorizer = Authorizer(Access(POLICIES, TokenSet([token, stranger])))
    types = headway.App("types")
    for each in (PROXY_STATE_TEMPLATE, SERVICE_ENDPOINTS, SERVICE, WORKLOAD):
        types.add_type(each)
    connected, port = Proxies(), free_port()
    network = headway.Network(["127.0.0.1:0"], tls=server_tls(file), access=authorizer)
    extension = proxies(in_memory(), connected=connected)
    async with (
        backend() as app,
        headway.open_engine("memory:", types, network=network, extensions=[extension]) as engine,
    ):
        await engine.client.apply(PROXY_STATE_TEMPLATE.new("api", template(port, app)))
        control, tls = engine.addresses[0], {"authority": str(ca)}
        for name in ("denied", "elsewhere", "api"):
            (tmp_path / name).mkdir()
        async with running(tmp_path / "denied", control, "api", token=other, **tls):
            log = tmp_path / "denied/envoy.log"
            await until_true(lambda: "you may not write the WorkloadIdentity of this proxy" in log.read_text())
            assert not await answers(port)
        async with running(
            tmp_path / "elsewhere", control, "api", token=text, server="control.example", **tls
        ) as admin:
            stat = "cluster.control.ssl.fail_verify_san"
            await until(f"{admin}/stats?filter={stat}", lambda got: bool(re.search(rf"{stat}: [1-9]", got.text)))
            assert not await answers(port)
        async with running(tmp_path / "api", control, "api", token=text, **tls):
            await until_answered(port)
            assert len(list(connected)) == 1
            authorizer.replace(Access(POLICIES, TokenSet([stranger])))
            await until_true(lambda: not list(connected))
            assert await answers(port), "it keeps what it has"
