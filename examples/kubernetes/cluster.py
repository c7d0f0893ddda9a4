"""A cluster without nodes: etcd and an API server as processes on loopback, in a folder.

No controllers of Kubernetes run in it: `stand_ins.py` does what the operator needs of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import trio
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

BINARIES = Path(sys.prefix)
ADMIN = "admin"
READY = 60.0
_PATHS = {
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Website": "/apis/example.org/v1/namespaces/{}/websites",
}


class Process:
    """A process that is started, killed and started again. Its output is in a file of the folder."""

    def __init__(self, folder: Path, name: str, *command: object, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        # The process ends with this one, even if this one is killed.
        setpriv = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        self._command = [*setpriv, *map(str, command)]
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send it a signal, by default that of `kill -9`, and return how it has ended."""
        assert self._process is not None
        self._process.send_signal(number)
        return await trio.to_thread.run_sync(self._process.wait)

    def check(self) -> None:
        """Raise RuntimeError, with the end of its output, if it has ended by itself."""
        if self._process is not None and (status := self._process.poll()) is not None:
            raise RuntimeError(f"{self.name} has ended with status {status}:\n{self.log.read_bytes()[-2000:].decode()}")

    def close(self) -> None:
        """Kill it if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Cluster:
    """The cluster, and a client that may do everything.

    Attributes:
        server: the API server, as a process.
        http: the client.
    """

    def __init__(self, server: Process, http: httpx.AsyncClient, folder: Path) -> None:
        self.server = server
        self.http = http
        self._folder = folder

    async def wait_ready(self) -> None:
        """Wait until the API server answers. Raise RuntimeError if it has ended."""
        with trio.fail_after(READY):
            while not await self._is_ready():
                self.server.check()
                await trio.sleep(0.1)

    async def _is_ready(self) -> bool:
        try:
            return (await self.http.get("/readyz")).is_success
        except httpx.TransportError:
            return False

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make a call, and return the answer. Raise httpx.HTTPStatusError if it is refused."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await self.http.request(method, path, json=body, headers={"Content-Type": kind})
        return checked(answer).json()

    async def apply(self, body: Mapping[str, Any]) -> None:
        """Apply an object, as `kubectl apply --server-side` does."""
        meta = body["metadata"]
        path = f"{_PATHS[body['kind']].format(meta.get('namespace', 'default'))}/{meta['name']}"
        kind = {"Content-Type": "application/apply-patch+yaml"}
        who = {"fieldManager": "person", "force": "true"}
        answer = await self.http.patch(path, params=who, content=yaml.safe_dump(dict(body)), headers=kind)
        checked(answer)

    async def kubeconfig_of(self, account: str) -> Path:
        """Return a file by which a program connects with the rights of a service account, and no others."""
        body = {"spec": {"expirationSeconds": 3600}}
        made = await self.call("POST", f"/api/v1/namespaces/default/serviceaccounts/{account}/token", body)
        file = self._folder / f"{account}.kubeconfig"
        server = {"server": str(self.http.base_url), "certificate-authority": str(self._folder / "apiserver.crt")}
        context = {"cluster": "local", "user": account, "namespace": "default"}
        content = {
            "current-context": "local",
            "contexts": [{"name": "local", "context": context}],
            "clusters": [{"name": "local", "cluster": server}],
            "users": [{"name": account, "user": {"token": made["status"]["token"]}}],
        }
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **content}))
        return file


@asynccontextmanager
async def running_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Run a cluster with its data in a folder, until the block ends."""
    etcd_port, peer_port, port = free_ports(3)
    etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
    etcd = Process(
        folder,
        "etcd",
        os.environ.get("HEADWAY_ETCD") or BINARIES / "etcd/etcd",
        f"--data-dir={folder / 'etcd'}",
        *(f"--{each}-client-urls={etcd_url}" for each in ("listen", "advertise")),
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",
    )
    (folder / "tokens").write_text(f"{ADMIN},admin,admin,system:masters\n")
    key = folder / "accounts.key"
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key.write_bytes(rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(*pem))
    server = Process(
        folder,
        "kube-apiserver",
        BINARIES / "kube/kube-apiserver",
        f"--etcd-servers={etcd_url}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder}",
        f"--token-auth-file={folder / 'tokens'}",
        "--service-account-issuer=https://localhost",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
    )
    # The API server makes its own certificate.
    client = httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{port}", headers={"Authorization": f"Bearer {ADMIN}"}, verify=False, timeout=10
    )
    try:
        etcd.start()
        server.start()
        async with client:
            cluster = Cluster(server, client, folder)
            await cluster.wait_ready()
            yield cluster
    finally:
        server.close()
        etcd.close()


def checked(answer: httpx.Response) -> httpx.Response:
    """Return the answer to a call. Raise httpx.HTTPStatusError, with what the API server says, if it is a refusal."""
    if not answer.is_success:
        raise httpx.HTTPStatusError(f"{answer.url.path}: {answer.text}", request=answer.request, response=answer)
    return answer


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, and that the kernel gives to no outgoing connection while a server restarts."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            break
    return ports
