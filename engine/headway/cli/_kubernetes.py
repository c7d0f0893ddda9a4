"""The commands `headway kubernetes`: what a program needs in a cluster, and its run there."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import IO, TypedDict

import click
import yaml

from headway.cli._exits import Exit, Usage
from headway.cli._named import apps_at
from headway.cli._process_options import ProcessOptions, process_options
from headway.cli._reload import held_hangups
from headway.cli._running import run
from headway.cli._work import apps_with_work, work_for
from headway.engine import Engine, Timing
from headway.errors import DeclarationError, InvalidArgument
from headway.events import Report
from headway.kubernetes import crds, diff, open_cluster, open_webhooks, rights, yaml_of
from headway.rpc import addresses, plain_text_host

_PLACE = "a Service as NAMESPACE/NAME or NAMESPACE/NAME:PORT, or an address such as https://10.0.0.7:9443"
_NONE = "declares no custom resource: use headway.kubernetes.resource(app, ...)"


class ClusterOptions(TypedDict):
    """Where the cluster is."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None


@click.group()
def kubernetes() -> None:
    """Run the controllers of APP on a Kubernetes cluster, and print the CRDs and the rights that it needs."""


@kubernetes.command("run")
@click.argument("app")
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
@click.option("--webhooks-at", metavar="PLACE", help=f"Where API servers find them: {_PLACE}.")
@process_options("A unique name. By default it is the host's name and some random digits.")
@held_hangups()
def run_(
    app: str,
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
    """Run the controllers of APP (module:attribute) on the objects of a cluster.

    Any number of processes may do so; the placement of a controller decides which of them run it.

    Stop it with Ctrl-C.
    """
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


@kubernetes.command()
@click.argument("app")
@click.option("--webhooks-at", metavar="PLACE", help=f"Name the webhook of the converters: {_PLACE}.")
def crd(app: str, webhooks_at: str | None) -> None:
    """Print the CustomResourceDefinitions of APP (module:attribute), for `kubectl apply -f -`."""
    try:
        found = crds(*apps_at(app), webhooks_at=webhooks_at)
    except (DeclarationError, InvalidArgument) as error:
        raise Usage(str(error)) from error
    if not found:
        raise Usage(f"{app} {_NONE}")
    click.echo(yaml_of(found), nl=False)


@kubernetes.command()
@click.argument("app")
@click.option("--name", help="The name of the documents. By default it is that of the app.")
@click.option("--namespace", default="default", show_default=True, help="The namespace in which the program runs.")
@click.option("--only-namespace", is_flag=True, help="The program works on the objects of its namespace alone.")
@click.option("--webhooks", is_flag=True, help="The program serves webhooks.")
def rbac(app: str, name: str | None, namespace: str, only_namespace: bool, webhooks: bool) -> None:
    """Print the service account of APP (module:attribute), and the roles with the rights that it needs."""
    apps = apps_at(app)
    program = name or apps[0].name
    try:
        found = rights(*apps, program=program, namespace=namespace, only_namespace=only_namespace, webhooks=webhooks)
    except DeclarationError as error:
        raise Usage(str(error)) from error
    click.echo(yaml_of(found), nl=False)


@kubernetes.command("diff")
@click.argument("old", type=click.File())
@click.argument("app")
@click.option("--webhooks-at", metavar="PLACE", help="As for `crd`.")
def diff_(old: IO[str], app: str, webhooks_at: str | None) -> None:
    """Say what of a change the cluster would refuse, or what would lose data.

    OLD is a file with the present CustomResourceDefinitions, best as the cluster has them: `kubectl get crd -o yaml`.
    The new ones are those of APP. The command exits with 7 if it found something.
    """
    try:
        read = [each for each in yaml.safe_load_all(old) if each]
    except yaml.YAMLError as error:
        raise Usage(f"{old.name} is not YAML: {error}") from error
    listed = [item for each in read for item in (each.get("items") or [each])]
    before = {each["metadata"]["name"]: each for each in listed if each.get("kind") == "CustomResourceDefinition"}
    if not before:
        raise Usage(f"{old.name} has no CustomResourceDefinition: kubectl get crd -o yaml > {old.name}")
    try:
        after = crds(*apps_at(app), webhooks_at=webhooks_at)
    except (DeclarationError, InvalidArgument) as error:
        raise Usage(str(error)) from error
    problems = [
        f"{name}: {sentence}"
        for each in after
        if (name := each["metadata"]["name"]) in before
        for sentence in diff(before[name], each)
    ]
    for problem in problems:
        click.echo(problem)
    if problems:
        sys.exit(Exit.DIFFERENT)
