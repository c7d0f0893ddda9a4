"""A real etcd that accepts only TLS and has users."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path

import trio
import trustme

from headway.errors import StoreUnusable, Unavailable
from headway.storage import EtcdBackend
from headway.testing.conformance import names, put, refused, thing
from tests.helpers.etcd_server import EtcdMember, free_ports, need_etcd
from tests.helpers.secret_files import write_secret


def _ask(port: int, context: ssl.SSLContext, path: str, **message: object) -> None:
    """Call etcd's JSON gateway once."""
    asked = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    try:
        asked.request("POST", f"/v3/auth/{path}", json.dumps(message))
        answer = asked.getresponse()
        assert answer.status == 200, answer.read()
    finally:
        asked.close()


async def test_store_works_over_tls_as_a_user(tmp_path: Path) -> None:
    """The url has the authority, the client certificate and the password; without any one of them nothing is served."""
    authority = trustme.CA()
    ca, server, client = tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(str(ca))
    write_secret(server, authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    write_secret(client, authority.issue_cert("engine").private_key_and_cert_chain_pem.bytes())
    port, peer_port, health_port = free_ports(3)
    member = EtcdMember(
        need_etcd(),
        "secured",
        tmp_path,
        port=port,
        peer_port=peer_port,
        health_port=health_port,
        options=(
            f"--listen-client-urls=https://127.0.0.1:{port}",
            f"--advertise-client-urls=https://127.0.0.1:{port}",
            f"--cert-file={server}",
            f"--key-file={server}",
            f"--trusted-ca-file={ca}",
            "--client-cert-auth",
        ),
    )
    member.start()
    try:
        await member.until_healthy()
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(client)

        def know_a_user() -> None:
            _ask(port, context, "user/add", name="root", password="secret")
            _ask(port, context, "role/add", name="root")
            _ask(port, context, "user/grant", user="root", role="root")
            _ask(port, context, "enable")

        await trio.to_thread.run_sync(know_a_user)
        where = f"127.0.0.1:{port}/staff"
        shown = f"ca={ca}&certificate={client}&key={client}"
        write_secret(tmp_path / "password", "secret\n")
        with trio.fail_after(60):
            async with EtcdBackend(f"etcd://root@{where}?{shown}&password_file={tmp_path / 'password'}") as store:
                await put(store, thing("a"))
                assert await names(store) == ["a"]
                assert (await store.acquire_lease("staff/x", "me", 5.0)).acquired
            await refused(StoreUnusable, EtcdBackend(f"etcd://root:wrong@{where}?{shown}").__aenter__(), "a password")
            await refused(StoreUnusable, EtcdBackend(f"etcd://{where}?{shown}").__aenter__(), "no user")
            unknown = EtcdBackend(f"etcd://root:secret@{where}?ca={ca}")
            await refused(Unavailable, unknown.__aenter__(), "no certificate")
    finally:
        member.kill()
