"""`open_cluster`, which runs the controllers of an app on the objects of a cluster."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, Unpack

from typing_extensions import override

from headway._gen.headway.store import v1 as store_pb
from headway.api import Call, StoreApi, call_of
from headway.base import async_block, block_nursery, check_trio
from headway.cache import range_of
from headway.controller import App
from headway.engine import Engine, ProcessOptions, combine_apps, open_workers, report_of
from headway.errors import DeclarationError, HeadwayError, StoreChanged
from headway.events import HandlerFailed, ServerWarned
from headway.kubernetes._cluster import Cluster
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._leases import Leases
from headway.kubernetes._pauses import WithPauses
from headway.kubernetes._resources import Resources
from headway.kubernetes._types import KubernetesType
from headway.kubernetes._unresolved import Unresolved
from headway.resource import Registry, Scope, is_builtin, position
from headway.rpc import InProcessChannel

_SAME = 60.0
"""The seconds for which an address is taken to belong to the same cluster, while no stream is opened."""


class Store(StoreApi):
    """The position of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @override
    async def position(self, call: Call, request: store_pb.PositionRequest, /) -> store_pb.PositionResponse:
        """Return the revision of a consistent read. Raises StoreChanged if it is below a known one."""
        store_id = await self._cluster.identify(within=_SAME)
        here = self._cluster.position(await self._cluster.now())
        known = position(request.known)
        if known is not None and (known.store_id != store_id or known.revision > here.revision):
            raise StoreChanged(f"the cluster {store_id} is at {here.revision}, but {known.revision} was known")
        return store_pb.PositionResponse(position=here.message())


class ClusterChannel(InProcessChannel):
    """A channel to the services of a cluster. A failed call may have had an effect on it."""

    knows_outcomes = False
    is_cluster = True

    def _seen(self, path: str, error: Exception) -> HeadwayError:
        # The errors of an API server say of which call they are, and how it failed.
        if isinstance(error, HeadwayError) and call_of(error) is not None:
            # Another object, which the error itself is the cause of.
            found = copy.copy(error)
            found.failed_call = call_of(error)
            return found
        return super()._seen(path, error)


@asynccontextmanager
async def open_channel(
    server: ApiServer,
    registry: Registry,
    namespace: str,
    warn: Callable[[str], object] = lambda _: None,
    *,
    only_namespace: bool = False,
    pauses: bool = False,
    **options: Any,
) -> AsyncIterator[ClusterChannel]:
    """Open a channel to the objects of a cluster, and to its pauses if wanted."""
    cluster = Cluster(server, registry, namespace, only_namespace=only_namespace)
    await cluster.identify()
    async with block_nursery() as nursery:
        unresolved = Unresolved(cluster, warn, nursery)
        resources = Resources(cluster, unresolved)
        served = WithPauses(resources, cluster) if pauses else resources
        channel = ClusterChannel(served, Leases(cluster, unresolved), Store(cluster), **options)
        try:
            yield channel
        finally:
            channel.close()


@async_block
async def open_cluster(
    *apps: App,
    kubeconfig: str | PathLike[str] | None = None,
    context: str | None = None,
    namespace: str | None = None,
    only_namespace: bool = False,
    **options: Unpack[ProcessOptions],
) -> AsyncIterator[Engine]:
    """``async with headway.kubernetes.open_cluster(app) as engine: ...``

    Run the controllers of the apps on the objects of a cluster, until the block ends. No task outlives the block, and
    its leases are released. With several processes, each controller's ``placement`` decides where it runs.

    Args:
        apps: the apps whose controllers run. Their types are those of `resource` and `builtin`.
        kubeconfig: the file that says where the cluster is. Default: in a Pod its service account, elsewhere the
            environment variable KUBECONFIG, or ``~/.kube/config``.
        context: the context of that file. Default: its current one.
        namespace: the namespace of the leases. Default: that of the Pod or of the context.
        only_namespace: read and watch the objects of this namespace alone, with rights in it alone.
        report, timing, process, journal, tracing, gc_freeze, extensions: as for `headway.open_workers`.

    Raises:
        InvalidArgument: the kubeconfig is missing or wrong.
        DeclarationError: the apps do not fit together.
        HeadwayError: the API server does not answer, or refuses the first call.
    """
    check_trio("headway.kubernetes.open_cluster")
    config = load_config(kubeconfig, context=context, namespace=namespace)
    registry, definitions = combine_apps(apps)
    for definition in definitions.values() if only_namespace else ():
        for used in definition.types:
            if (namespace := range_of(used).namespace) not in ("*", config.namespace):
                raise DeclarationError(
                    f"only_namespace: {definition.full_name} uses {used.name} within namespace {namespace!r}, but the "
                    f"program works in {config.namespace!r} alone"
                )
    for each in registry:
        if not isinstance(each, KubernetesType) and not is_builtin(each):
            raise DeclarationError(
                f"{each.name} is no type of Kubernetes: declare it by headway.kubernetes.resource(...) or "
                "builtin(...), or run its controllers on a store of Headway"
            )
        if only_namespace and isinstance(each, KubernetesType) and each.scope is Scope.CLUSTER:
            raise DeclarationError(f"only_namespace: {each.name} belongs to the cluster, and to no namespace")
    report = report_of(options.get("report"))

    def warned(text: str) -> None:
        report(ServerWarned(text))

    def failed(path: str, error: BaseException) -> None:
        report(HandlerFailed(path, error))

    async with (
        ApiServer(config, on_warning=warned) as server,
        open_channel(
            server, registry, config.namespace, warned, only_namespace=only_namespace, pauses=True, report=failed
        ) as channel,
        open_workers(channel, *apps, **options) as engine,
    ):
        yield engine
