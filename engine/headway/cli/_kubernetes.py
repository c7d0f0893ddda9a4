"""The commands `headway kubernetes`: what a program needs in a cluster. `headway run --kubernetes` runs it there."""

from __future__ import annotations

import click

from headway.cli._exits import Usage
from headway.cli._named import apps_at
from headway.errors import DeclarationError, InvalidArgument
from headway.kubernetes import crds, rights, yaml_of

PLACE = "a Service as NAMESPACE/NAME or NAMESPACE/NAME:PORT, or an address such as https://10.0.0.7:9443"
_NONE = "declares no custom resource: use headway.kubernetes.resource(app, ...)"


@click.group()
def kubernetes() -> None:
    """Print the CustomResourceDefinitions of APP, and the rights that it needs in a Kubernetes cluster."""


@kubernetes.command()
@click.argument("app")
@click.option("--webhooks-at", metavar="PLACE", help=f"Name the webhook of the converters: {PLACE}.")
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
