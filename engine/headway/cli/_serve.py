"""`headway serve`."""

from __future__ import annotations

import importlib
import ipaddress
import os
import sys
from collections.abc import Sequence
from ssl import SSLContext
from typing import Any

import click
import trio

from headway.cli._exits import Exit, Usage, fail
from headway.cli._running import run
from headway.controller import App
from headway.engine import open_engine
from headway.errors import DeclarationError, InvalidArgument
from headway.rpc import address, server_tls

_EXISTING = click.Path(exists=True, dir_okay=False)


@click.command()
@click.argument("app")
@click.option("--store", default="memory:", show_default=True, help="memory: or sqlite:PATH.")
@click.option("--listen", multiple=True, default=["127.0.0.1:7070"], show_default=True, help="May be repeated.")
@click.option("--tls-certificate", type=_EXISTING, help="The certificate to show.")
@click.option("--tls-key", type=_EXISTING, help="Its key, if it is in a file of its own.")
@click.option("--tls-client-authority", type=_EXISTING, help="Who must have signed the certificates of clients.")
@click.option("--insecure", is_flag=True, help="Listen without TLS on addresses that others can reach.")
def serve(
    app: str,
    store: str,
    listen: Sequence[str],
    tls_certificate: str | None,
    tls_key: str | None,
    tls_client_authority: str | None,
    insecure: bool,
) -> None:
    """Run the controllers of APP (module:attribute), and offer its resources to clients.

    It ends with Ctrl-C.
    """
    try:
        tls = server_tls(tls_certificate, tls_key, client_ca=tls_client_authority) if tls_certificate else None
    except OSError as error:
        raise Usage(f"the TLS options can't be used: {error}") from error
    if tls is None and (tls_key or tls_client_authority):
        raise Usage("--tls-key and --tls-client-authority go with --tls-certificate")
    for each in listen:
        _check_address(each, safe=insecure or tls_client_authority is not None)
    run(_Serving(apps_at(app), store, listen, tls).serve, interrupted=Exit.DONE)


class _Serving:
    def __init__(self, apps: Sequence[App], store: str, listen: Sequence[str], tls: SSLContext | None) -> None:
        self._apps = apps
        self._store = store
        self._listen = listen
        self._tls = tls

    async def serve(self) -> None:
        try:
            # Who can connect may do everything: the addresses were checked to be nobody else's, or that was asked for.
            async with open_engine(
                self._store, *self._apps, listen=self._listen, tls=self._tls, insecure=True
            ) as engine:
                for each in engine.addresses:
                    click.echo(f"listening on {each}")
                sys.stdout.flush()
                await trio.sleep_forever()
        except (OSError, DeclarationError) as error:
            fail(Exit.REFUSED, f"Error: {error}")


def _check_address(text: str, *, safe: bool) -> None:
    try:
        parsed = address(text)
    except InvalidArgument as error:
        raise Usage(f"--listen: {error}") from error
    if safe or parsed.path or _is_loopback(parsed.host):
        return
    raise Usage(
        f"--listen {text}: others can reach this address, and anyone there may read and write everything. "
        "Have clients show certificates by --tls-client-authority, listen on 127.0.0.1, or say --insecure"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may mean any address, and another one tomorrow.
        return False


def apps_at(reference: str) -> list[App]:
    """The app, or the apps, that ``module:attribute`` refers to. Raises Usage."""
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise Usage(f"{reference!r} is no app; write module:attribute, such as staff.app:app")
    # As `python -m` has it: a module of the working directory is found.
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise Usage(f"{reference}: there is no module {error.name!r} here or among what is installed") from error
        raise
    given: Any = found
    for part in attribute.split("."):
        if not hasattr(given, part):
            raise Usage(f"{reference}: {module} has no {attribute!r}")
        given = getattr(given, part)
    given = list(given) if isinstance(given, list | tuple) else [given]
    apps = [each for each in given if isinstance(each, App)]
    if not apps or len(apps) != len(given):
        raise Usage(f"{reference} is {given!r:.120}; it must be a headway.App, or a list of them")
    return apps
