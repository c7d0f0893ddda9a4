"""The command `headway serve`, and the checks of its options."""

from __future__ import annotations

from collections.abc import Sequence
from ssl import SSLContext

import click

from headway.access import Authorizer, load_access
from headway.cli._app_at import apps_at
from headway.cli._exits import Exit, Usage, fail_by
from headway.cli._limit_options import limit_options
from headway.cli._process_options import check_pages, check_process, process_options
from headway.cli._running import run
from headway.cli._serving import Forwarding, ProcessOptions, Serving
from headway.cli._tls_files import check_key
from headway.errors import InvalidArgument, ManifestError
from headway.rpc import Address, Limits, ServerTls, address, client_tls, is_loopback, plain_text_host, server_tls

_EXISTING = click.Path(exists=True, dir_okay=False)


@click.command()
@click.argument("app", required=False)
@click.option(
    "--store", default="memory:", show_default=True, help="memory:, sqlite:PATH or etcd://HOST:PORT,HOST:PORT/PREFIX."
)
@click.option(
    "--listen", multiple=True, default=["127.0.0.1:7070"], show_default=True, help="An address. May be repeated."
)
@click.option("--tls-certificate", type=_EXISTING, help="The server's certificate. Reloaded when it is renewed.")
@click.option("--tls-key", type=_EXISTING, help="Its private key, if in a separate file.")
@click.option("--tls-client-authority", type=_EXISTING, help="Require client certificates signed by this authority.")
@click.option("--access", type=_EXISTING, help="The access file. SIGHUP reloads it.")
@process_options("A unique name, if several processes share a store in etcd.")
@click.option("--insecure", is_flag=True, help="Allow an address that others can reach, and allow them everything.")
@click.option(
    "--forward",
    multiple=True,
    metavar="ADDRESS",
    help="Forward to this server instead of running an APP. May be repeated.",
)
@click.option("--forward-tls", is_flag=True, help="Connect to it by TLS, with the system's trusted authorities.")
@click.option("--forward-tls-authority", type=_EXISTING, help="Trusted authorities; implies --forward-tls.")
@click.option("--forward-tls-certificate", type=_EXISTING, help="The client certificate to send to it.")
@click.option("--forward-tls-key", type=_EXISTING, help="Its private key, if in a separate file.")
@click.option("--forward-insecure", is_flag=True, help="Forward tokens to another host even without TLS.")
@limit_options
@click.pass_context
def serve(
    context: click.Context,
    app: str | None,
    store: str,
    listen: Sequence[str],
    tls_certificate: str | None,
    tls_key: str | None,
    tls_client_authority: str | None,
    access: str | None,
    metrics: str | None,
    public_metrics: bool,
    process: str | None,
    hard_exit: float,
    gc_freeze: bool,
    verbose: bool,
    insecure: bool,
    forward: Sequence[str],
    forward_tls: bool,
    forward_tls_authority: str | None,
    forward_tls_certificate: str | None,
    forward_tls_key: str | None,
    forward_insecure: bool,
    limits: Limits,
) -> None:
    """Run the controllers of APP (module:attribute), and serve its resources to clients.

    With --forward and no APP, forward all calls to another server.

    Stop it with Ctrl-C.
    """
    if (app is None) is not bool(forward):
        raise Usage(
            "give an APP (module:attribute) to run, or --forward ADDRESS of a server: "
            f"{'one of the two, not both' if forward else 'one of the two'}"
        )
    _check_together(context, forwards=bool(forward))
    check_pages(metrics, public=public_metrics)
    tls = _tls(tls_certificate, tls_key, tls_client_authority)
    safe = insecure or tls_client_authority is not None
    for each in listen:
        _check_address(each, access=access, encrypted=tls is not None, safe=safe, forwards=app is None)
    if app is None:
        parsed = [_parsed("--forward", each) for each in forward]
        upstream = None
        if forward_tls or forward_tls_authority or forward_tls_certificate:
            upstream = _upstream_tls(forward_tls_authority, forward_tls_certificate, forward_tls_key)
        if not forward_insecure and (host := plain_text_host(parsed, upstream)):
            click.echo(
                f"Warning: --forward {host}: calls with a token are rejected, because others could read it on the way "
                "to this host. Give --forward-tls, or --forward-insecure",
                err=True,
            )
        forwarding = Forwarding(
            forward, upstream, listen, tls, insecure=forward_insecure, verbose=verbose, limits=limits
        )
        run(forwarding.serve, interrupted=Exit.DONE, hard_exit=hard_exit)
        return
    if process is not None:
        _check_process(process, store)
    authorizer = None
    if access is not None:
        try:
            authorizer = Authorizer(load_access(access))
        except ManifestError as error:
            fail_by(error)
        except OSError as error:
            raise Usage(f"--access: {error}") from error
    serving = Serving(
        apps_at(app),
        store,
        listen,
        tls,
        authorizer,
        access,
        metrics,
        public=public_metrics,
        options=ProcessOptions(process, hard_exit, verbose, gc_freeze),
        limits=limits,
    )
    run(serving.serve, interrupted=Exit.DONE, hard_exit=hard_exit)


def _check_together(context: click.Context, *, forwards: bool) -> None:
    """Raise Usage if an option would have no effect, or if options contradict each other."""
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE and context.params[name]
    }
    if forwards:
        if "max_message_size" in given:
            raise Usage("--max-message-size goes with an APP: the other server limits the size of messages")
        if "store" in given:
            raise Usage("--store goes with an APP: a forwarder stores nothing")
        if "metrics" in given:
            raise Usage("--metrics goes with an APP: a forwarder has no controllers")
        if "process" in given:
            raise Usage("--process goes with an APP: a forwarder runs no controllers")
        if "access" in given:
            raise Usage("--access goes with an APP: the other server controls access")
        if "forward_tls_key" in given and "forward_tls_certificate" not in given:
            raise Usage("--forward-tls-key goes with --forward-tls-certificate")
    elif alone := sorted(name for name in given if name.startswith("forward_")):
        raise Usage(f"--{alone[0].replace('_', '-')} goes with --forward")
    if {"access", "insecure"} <= given:
        raise Usage("--access controls access, and --insecure allows everyone everything: give one of them")


def _check_process(name: str, store: str) -> None:
    check_process(name)
    if not store.startswith("etcd:"):
        raise Usage(f"--process {name}: only processes that share a store in etcd need names; give --store etcd://...")


def _tls(certificate: str | None, key: str | None, client_authority: str | None) -> ServerTls | None:
    if certificate is None:
        if key or client_authority:
            raise Usage("--tls-key and --tls-client-authority go with --tls-certificate")
        return None
    check_key(certificate, key, "--tls-key")
    try:
        return server_tls(certificate, key, client_ca=client_authority)
    except OSError as error:
        raise Usage(f"invalid TLS options: {error}") from error


def _upstream_tls(authority: str | None, certificate: str | None, key: str | None) -> SSLContext:
    check_key(certificate, key, "--forward-tls-key")
    try:
        return client_tls(authority, certificate=certificate, key=key)
    except OSError as error:
        raise Usage(f"invalid TLS options of --forward: {error}") from error


def _parsed(option: str, text: str) -> Address:
    try:
        return address(text)
    except InvalidArgument as error:
        raise Usage(f"{option}: {error}") from error


def _check_address(text: str, *, access: str | None, encrypted: bool, safe: bool, forwards: bool) -> None:
    parsed = _parsed("--listen", text)
    if safe or parsed.path or is_loopback(parsed.host):
        return
    if access is None:
        what = "do everything that the other server allows" if forwards else "read and write everything"
        by_access = "" if forwards else "control access with --access, "
        raise Usage(
            f"--listen {text}: others can reach this address, and may {what}. "
            f"Require client certificates with --tls-client-authority, {by_access}"
            "listen on 127.0.0.1, or give --insecure"
        )
    if not encrypted:
        click.echo(
            f"Warning: --listen {text}: without --tls-certificate, anyone on the network path can read the tokens",
            err=True,
        )
