"""The command `headway run`, which runs controllers on the objects of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TypedDict

import click

from headway.cli._exits import Exit, Usage
from headway.cli._kubernetes import PLACE
from headway.cli._process_options import ProcessOptions, process_options
from headway.cli._reload import held_hangups
from headway.cli._running import run
from headway.cli._work import apps_with_work, work_for
from headway.engine import Engine, Timing
from headway.errors import InvalidArgument
from headway.events import Report
from headway.kubernetes import open_cluster, open_webhooks
from headway.rpc import addresses, plain_text_host


class ClusterOptions(TypedDict):
    """Where the cluster is."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None


@click.command("run")
@click.argument("app")
@click.option("--kubernetes", is_flag=True, help="On the objects of a Kubernetes cluster. It is required.")
@click.option("--kubeconfig", metavar="FILE", help="Where the cluster is. By default as kubectl finds it, or the Pod.")
@click.option("--context", metavar="NAME", help="The context of the kubeconfig. By default its current one.")
@click.option("--namespace", help="The namespace of the leases. By default that of the Pod, or of the context.")
@click.option("--only-namespace", is_flag=True, help="Read and watch the objects of that namespace alone.")
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDRESS",
    help="Answer `headway why`, `retry`, `pause` and `resume` here, such as at 127.0.0.1:7070. May be repeated.",
)
@click.option("--http", metavar="HOST:PORT", help="Serve a live page of this process here, on loopback only.")
@click.option("--http-writes", is_flag=True, help="Let the live page of --http apply, delete, pause, resume and retry.")
@click.option("--webhooks", metavar="HOST:PORT", help="Serve the converters and hooks to the cluster at this address.")
@click.option("--webhooks-at", metavar="PLACE", help=f"Where API servers find them: {PLACE}.")
@process_options("A unique name. By default it is the host's name and some random digits.")
@held_hangups()
def run_app(
    app: str,
    kubernetes: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    only_namespace: bool,
    listen: Sequence[str],
    http: str | None,
    http_writes: bool,
    webhooks: str | None,
    webhooks_at: str | None,
    options: ProcessOptions,
) -> None:
    """Run the controllers of APP (module:attribute) on the objects of a Kubernetes cluster.

    Any number of processes may do so; the placement of a controller decides which of them run it.

    Stop it with Ctrl-C.
    """
    if not kubernetes:
        raise Usage(
            f"give --kubernetes, to run it on the objects of a cluster. `headway serve {app}` runs an app on a store, "
            f"and `headway work {app}` runs its controllers for a server"
        )
    options = options._replace(process=options.name())
    options.check_pages()
    try:
        open_to_others = plain_text_host(addresses(listen), None) if listen else None
    except InvalidArgument as error:
        raise Usage(f"--listen: {error}") from error
    if open_to_others is not None:
        raise Usage(
            f"--listen {open_to_others}: others can reach this address, and ask about everything. Use 127.0.0.1 or "
            "unix:PATH, which `kubectl exec` and `kubectl port-forward` reach"
        )
    if http is None and http_writes:
        raise Usage("--http-writes requires --http: it lets the live page there change things")
    if http is not None:
        from headway.page import check_own_page

        try:
            check_own_page(http)
        except InvalidArgument as error:
            raise Usage(f"--http: {error}") from error
    if webhooks_at is not None and webhooks is None:
        raise Usage("--webhooks-at requires --webhooks: it says where API servers find what that address serves")
    apps = apps_with_work(app)

    @asynccontextmanager
    async def opened(report: Report) -> AsyncIterator[Engine]:
        where = ClusterOptions(kubeconfig=kubeconfig, context=context, namespace=namespace)
        async with AsyncExitStack() as stack:
            if webhooks is not None:
                hooks = open_webhooks(*apps, address=webhooks, at=webhooks_at, report=report, **where)
                await stack.enter_async_context(hooks)
            engine = open_cluster(
                *apps,
                **where,
                only_namespace=only_namespace,
                process=options.process,
                report=report,
                timing=Timing(hard_exit=options.hard_exit),
                gc_freeze=options.gc_freeze,
                journal=options.journal,
            )
            yield await stack.enter_async_context(engine)

    def page(engine: Engine) -> AbstractAsyncContextManager[str | None]:
        if http is None:
            return nullcontext()
        from headway.page import open_page

        return open_page(engine, *apps, http=http, http_writes=http_writes)

    working = partial(work_for, "the cluster", opened, options, listen, http, page)
    run(working, interrupted=Exit.DONE, hard_exit=options.hard_exit)
