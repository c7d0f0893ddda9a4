"""A real Kubernetes API server for the tests of a process, and a namespace for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import pytest

from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import ClusterConfig, Content
from tests.helpers.kube_server import ADMIN, KubeServer, running_kube

_UNCLOSED = r"ignore:Exception ignored in. <(ssl|socket)\.:pytest.PytestUnraisableExceptionWarning"
"""A call that is canceled in its handshake leaves the socket to Python's garbage collector: httpcore does."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the sockets of canceled calls be collected."""
    for item in items:
        if item.path.parent.name == "kubernetes":
            item.add_marker(pytest.mark.filterwarnings(_UNCLOSED))


class RealServer(NamedTuple):
    """A real API server, and a token that may do everything."""

    kube: KubeServer
    token: str = ADMIN

    @property
    def url(self) -> str:
        return self.kube.url

    def config(self, token: str | None = None) -> ClusterConfig:
        return ClusterConfig(
            self.url,
            "a test",
            ca=Content("its CA", self.kube.authority_file),
            token=Content("its token", text=self.token if token is None else token),
        )


@pytest.fixture(scope="session")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """An API server that the tests of a process share. A test that stops or changes it makes its own `running_kube`."""
    with running_kube(tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture
def namespace(kube: KubeServer) -> str:
    """The name of a new namespace for the test alone."""
    return kube.new_namespace()


@pytest.fixture
def api_server(kube: KubeServer) -> RealServer:
    """The server, as the tests of connections use it."""
    return RealServer(kube)


@pytest.fixture
async def server(api_server: RealServer) -> AsyncIterator[ApiServer]:
    """A connection to the server."""
    async with ApiServer(api_server.config()) as server:
        yield server
