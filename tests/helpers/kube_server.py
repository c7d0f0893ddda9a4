"""A real Kubernetes API server on an etcd of its own: both run as processes on loopback.

The binary is the one that `make kube` builds with Go. Only the API server runs, without controllers: nothing collects
garbage, ends namespaces or makes Pods of Deployments.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.helpers.etcd_server import ROOT, EtcdMember, free_ports, need_etcd
from tests.helpers.server_process import ServerProcess

BUILT = ROOT / ".venv/kube/kube-apiserver"
KUBECTL = ROOT / ".venv/kube/kubectl"
NO_KUBE = "no Kubernetes API server, or no kubectl: install Go and run `make kube`"
READY = 60.0
# The token of each user: the first belongs to system:masters and may do everything, the other has no rights.
ADMIN, BOB = "admin", "bob"


def need_kube(binary: Path = BUILT) -> Path:
    """Return the binary. Without one, skip the test, or fail it if HEADWAY_NEEDS_KUBE is set, as it is in CI."""
    if binary.exists():
        return binary
    if os.environ.get("HEADWAY_NEEDS_KUBE"):
        pytest.fail(NO_KUBE, pytrace=False)
    pytest.skip(NO_KUBE)


class KubeServer(ServerProcess):
    """An API server: its port, its certificates, and its process while it runs.

    Its port and its data stay the same over restarts. A second server on the same etcd is another `KubeServer` with the
    same `etcd` and `authority`.

    Attributes:
        url: its address, ``https://127.0.0.1:PORT``.
        etcd: the etcd that has its data.
        authority: the certificate authority that signs its certificate and those of its users.
        authority_file: the certificate of the authority, as a PEM file.
    """

    def __init__(
        self,
        folder: Path,
        etcd: EtcdMember,
        authority: trustme.CA,
        flags: Sequence[str] = (),
    ) -> None:
        """Prepare a server without starting it.

        Args:
            flags: more flags of kube-apiserver, such as ``--feature-gates=WatchList=false``.
        """
        folder.mkdir(parents=True)
        (port,) = free_ports(1)
        self.name, self.url, self.log = "kube-apiserver", f"https://127.0.0.1:{port}", folder / "kube-apiserver.log"
        self.etcd, self.authority, self.authority_file = etcd, authority, folder / "ca.crt"
        authority.cert_pem.write_to_path(self.authority_file)
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        for each in certificate.cert_chain_pems:
            each.write_to_path(folder / "server.crt", append=True)
        (folder / "tokens").write_text(f"{ADMIN},admin,admin,system:masters\n{BOB},bob,bob\n")
        accounts = folder.parent / "accounts.key"
        if not accounts.exists():
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            form = serialization.PrivateFormat.TraditionalOpenSSL
            accounts.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        arguments = {
            "etcd-servers": f"http://{etcd.endpoint}",
            "secure-port": port,
            "bind-address": "127.0.0.1",
            "cert-dir": folder,
            "tls-cert-file": folder / "server.crt",
            "tls-private-key-file": folder / "server.key",
            "client-ca-file": self.authority_file,
            "token-auth-file": folder / "tokens",
            "service-account-issuer": "https://localhost",
            "service-account-key-file": accounts,
            "service-account-signing-key-file": accounts,
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "RBAC",
            "disable-admission-plugins": "ServiceAccount",
        }
        self._port = port
        self._trust = ssl.create_default_context(cafile=str(self.authority_file))
        self._set_command([str(need_kube()), *(f"--{name}={value}" for name, value in arguments.items()), *flags])

    def healthy(self, timeout: float = 2.0) -> bool:
        """Return True if it is ready to serve. Block for up to ``timeout`` seconds."""
        asked = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=timeout, context=self._trust)
        try:
            asked.request("GET", "/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
            answer = asked.getresponse()
            return answer.status == 200 and answer.read() == b"ok"
        except (OSError, http.client.HTTPException):
            return False
        finally:
            asked.close()

    def start_ready(self) -> None:
        """Start its process and wait until it serves."""
        self.start()
        self.wait_healthy(READY)

    @contextmanager
    def client(self, token: str = ADMIN) -> Iterator[httpx.Client]:
        """Open a plain client of the server, for what a test itself asks and changes."""
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=self.url, headers=headers, verify=self._trust, timeout=30) as client:
            yield client

    @contextmanager
    def second(self, flags: Sequence[str] = ()) -> Iterator[KubeServer]:
        """Run another server on the same etcd until the end of the block."""
        folder = self.log.parent.with_name(f"server-{uuid.uuid4().hex[:8]}")
        other = KubeServer(folder, self.etcd, self.authority, flags)
        try:
            other.start_ready()
            yield other
        finally:
            other.kill()

    def new_namespace(self) -> str:
        """Create a namespace that no test has used, and return its name."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        with self.client() as client:
            client.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
        return name

    def compact(self) -> int:
        """Compact etcd up to its present revision, and return that revision."""
        head = self._ask_etcd("kv/range", {"key": "AA=="})["header"]
        self._ask_etcd("kv/compaction", {"revision": head["revision"], "physical": True})
        return int(head["revision"])

    def save_store(self, copy: Path) -> None:
        """Copy the data directory of etcd as it is now."""
        self.etcd.pause()
        try:
            shutil.copytree(self.etcd.data, copy)
        finally:
            self.etcd.resume()

    def restore_store(self, copy: Path) -> None:
        """Kill this server and etcd, put a copy of etcd's data in place, and start both again."""
        self.kill()
        self.etcd.kill()
        shutil.rmtree(self.etcd.data)
        shutil.copytree(copy, self.etcd.data)
        self.etcd.start()
        self.etcd.wait_healthy()
        self.start_ready()

    def _ask_etcd(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        host, _, port = self.etcd.endpoint.partition(":")
        asked = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            asked.request("POST", f"/v3/{method}", json.dumps(body))
            answer = asked.getresponse()
            said = answer.read()
            assert answer.status == 200, said
            found: dict[str, Any] = json.loads(said)
            return found
        finally:
            asked.close()


@contextmanager
def running_kube(folder: Path, flags: Sequence[str] = ()) -> Iterator[KubeServer]:
    """Run an API server and its etcd on free ports until the end of the block."""
    need_kube()
    port, peer_port = free_ports(2)
    etcd = EtcdMember(need_etcd(), "kube", folder, port=port, peer_port=peer_port)
    with ExitStack() as ending:
        ending.callback(etcd.kill)
        etcd.start()
        etcd.wait_healthy()
        server = KubeServer(folder / "server", etcd, trustme.CA(), flags)
        ending.callback(server.kill)
        server.start_ready()
        yield server
