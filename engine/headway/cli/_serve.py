"""The command `headway serve`: its options and their checks, and the engine or the forwarder that it runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from ssl import SSLContext
from typing import Any

import click
import trio

from headway.access import Authorizer, load_access
from headway.base import check_regular
from headway.cli._exits import Exit, Usage
from headway.cli._log import announce, configure_log, tell
from headway.cli._named import any_store, apps_at
from headway.cli._process_options import ProcessOptions, process_options
from headway.cli._processes import AFTER_THE_PROCESSES, Plan, check_processes, supervise
from headway.cli._reload import files_of, hangups, held_hangups, reload_at_hangups
from headway.cli._running import fail_by, fail_to_serve, run
from headway.cli._sibling import Sibling, sibling_of
from headway.cli._target import check_key, tls_context
from headway.controller import App
from headway.engine import Network, Timing, open_engine
from headway.errors import DeclarationError, InvalidArgument, ManifestError
from headway.events import ignore
from headway.http import check_http_address
from headway.observe import log_report
from headway.rpc import (
    Address,
    Limits,
    ServerTls,
    address,
    free_descriptors,
    is_loopback,
    is_scarce,
    open_forwarder,
    plain_text_host,
    server_tls,
)
from headway.storage import names_shared

_MIB = 1 << 20
_DEFAULT_LIMITS = Limits()
_COUNT = click.IntRange(min=1)

# Each option, with the limit that it sets, and the factor that converts its value to the limit's unit.
_LIMITS: dict[str, tuple[str, int, click.ParamType[Any], str, str]] = {
    "max_connections": ("connections", 1, _COUNT, "COUNT", "Maximum number of open connections, within `ulimit -n`."),
    "max_peer_connections": ("peer_connections", 1, _COUNT, "COUNT", "The same, from one IP address or IPv6 /64."),
    "max_handshakes": ("handshakes", 1, _COUNT, "COUNT", "Maximum number of connections still in their handshake."),
    "max_peer_handshakes": ("peer_handshakes", 1, _COUNT, "COUNT", "The same, from one IP address or IPv6 /64."),
    "handshake_timeout": (
        "handshake_timeout",
        1,
        click.FloatRange(min=0, min_open=True),
        "SECONDS",
        "Time limit for the handshake of a connection.",
    ),
    "max_message_size": ("message_size", _MIB, click.IntRange(1, 1024), "MIB", "Maximum size of a request, in MiB."),
}


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets the resulting ``limits``."""

    @functools.wraps(command)
    def with_limits(*arguments: Any, **given: Any) -> None:
        wanted = {name: given.pop(option) * unit for option, (name, unit, *_) in _LIMITS.items()}
        command(*arguments, limits=Limits(**wanted), **given)

    for option, (name, unit, kind, metavar, text) in reversed(_LIMITS.items()):
        with_limits = click.option(
            f"--{option.replace('_', '-')}",
            type=kind,
            default=type(getattr(_DEFAULT_LIMITS, name))(getattr(_DEFAULT_LIMITS, name) / unit),
            show_default=True,
            metavar=metavar,
            help=text,
        )(with_limits)
    return with_limits


_EXISTING = click.Path(exists=True, dir_okay=False)


@click.command()
@click.argument("app", required=False)
@click.option(
    "--store",
    default="memory:",
    show_default=True,
    help="memory:, sqlite:PATH, etcd://HOST:PORT,HOST:PORT/PREFIX or postgresql://USER@HOST/DATABASE.",
)
@click.option(
    "--listen", multiple=True, default=["127.0.0.1:7070"], show_default=True, help="An address. May be repeated."
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve a live page, and resources as JSON over HTTP, here. Without --access, on loopback only.",
)
@click.option("--http-writes", is_flag=True, help="Let the live page of --http apply, delete, pause, resume and retry.")
@click.option("--tls-certificate", type=_EXISTING, help="The server's certificate. Reloaded when it is renewed.")
@click.option("--tls-key", type=_EXISTING, help="Its private key, if in a separate file.")
@click.option("--tls-client-authority", type=_EXISTING, help="Require client certificates signed by this authority.")
@click.option("--access", type=_EXISTING, help="The access file. SIGHUP reloads it.")
@process_options("A unique name, if several processes share a store.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="Serve by this many processes on the same port, which share a store in etcd or PostgreSQL.",
)
@click.option("--insecure", is_flag=True, help="Listen where others can connect, without access control.")
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
@held_hangups()
def serve(
    context: click.Context,
    app: str | None,
    store: str,
    listen: Sequence[str],
    http: str | None,
    http_writes: bool,
    tls_certificate: str | None,
    tls_key: str | None,
    tls_client_authority: str | None,
    access: str | None,
    options: ProcessOptions,
    processes: int,
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
    sibling = sibling_of(os.environ)
    if (app is None) is not bool(forward):
        raise Usage(
            "give an APP (module:attribute) to run, or --forward ADDRESS of a server: "
            f"{'one of the two, not both' if forward else 'one of the two'}"
        )
    _check_together(context, forwards=bool(forward))
    options.check_pages()
    if options.log == "json":
        # For warnings before the start.
        configure_log(options.log)
    tls = _tls(tls_certificate, tls_key, tls_client_authority)
    safe = insecure or tls_client_authority is not None
    if sibling is None:
        for each in listen:
            warning = _check_address(each, access=access, encrypted=tls is not None, safe=safe, forwards=app is None)
            if warning is not None:
                tell(options.log, warning, warning=True)
    if http_writes and http is None:
        raise Usage("--http-writes requires --http: it lets the live page there change things")
    if http is not None and sibling is None:
        warning = _check_http(http, access=access, encrypted=tls is not None)
        if warning is not None:
            tell(options.log, warning, warning=True)
    if app is None:
        parsed = [_parsed("--forward", each) for each in forward]
        upstream = None
        if forward_tls or forward_tls_authority or forward_tls_certificate:
            upstream = tls_context(forward_tls_authority, forward_tls_certificate, forward_tls_key, forward=True)
        if not forward_insecure and (host := plain_text_host(parsed, upstream)):
            tell(
                options.log,
                f"Warning: --forward {host}: calls with a token are rejected, because others could read it on the way "
                "to this host. Give --forward-tls, or --forward-insecure",
                warning=True,
            )
        forwarding = partial(_forward, forward, upstream, listen, tls, limits, options.log)
        serving = partial(forwarding, insecure=forward_insecure, verbose=options.verbose)
    else:
        any_store("--store", store)
        if options.process is not None:
            _check_process(options, store)
        authorizer = None if access is None else _authorizer(access)
        # The app may change the directory, already when it is imported. Links are not resolved.
        reread = None if access is None else os.path.abspath(access)
        if processes > 1 and sibling is None:
            plan = Plan(processes, listen, options)
            check_processes(plan, store, [_parsed("--listen", each) for each in listen])
            patience = options.hard_exit + 2 * AFTER_THE_PROCESSES
            run(partial(supervise, plan), interrupted=Exit.DONE, hard_exit=patience)
            return
        if sibling is not None:
            listen, http = sibling.listen, http if sibling.number == 1 else None
            options = options._replace(process=sibling.process, journal=sibling.journal(options.journal))
            # Imported here, because it keeps the standard output that it finds, which is another one after the start.
            import structlog

            structlog.contextvars.bind_contextvars(process=sibling.process)
        about = (apps_at(app), store, listen, http, tls, limits, options, authorizer, access)
        serving = partial(_serve, *about, reread=reread, http_writes=http_writes, sibling=sibling)
    run(serving, interrupted=Exit.DONE, hard_exit=options.hard_exit)


async def _serve(
    apps: Sequence[App],
    store: str,
    listen: Sequence[str],
    http: str | None,
    tls: ServerTls | None,
    limits: Limits,
    options: ProcessOptions,
    authorizer: Authorizer | None,
    access: str | None,
    *,
    reread: str | None,
    http_writes: bool,
    sibling: Sibling | None,
) -> None:
    """Run an engine until canceled. SIGHUP reloads its access file and its certificate."""
    report, metrics = options.report()
    if sibling is None or sibling.number == 1:
        _warn_of_certificate(tls, options.log)
    try:
        # Without an authorizer, everyone who can connect may do everything. This is safe: either no other host can
        # reach the addresses, or the user asked for it.
        async with (
            hangups() as signals,
            open_engine(
                store,
                *apps,
                network=Network(
                    listen,
                    http=http,
                    http_writes=http_writes,
                    tls=tls,
                    access=authorizer,
                    insecure=authorizer is None,
                    limits=limits,
                    share_ports=sibling is not None,
                ),
                report=report,
                process=options.process,
                timing=Timing(hard_exit=options.hard_exit),
                gc_freeze=options.gc_freeze,
                journal=options.journal,
            ) as engine,
            trio.open_nursery() as nursery,
            options.open_pages(engine, metrics, sibling) as pages,
        ):
            files = files_of(tls, metrics or ignore)
            if authorizer is not None and access is not None and reread is not None:
                files[access] = partial(_reload_access, authorizer, reread)
            nursery.start_soon(reload_at_hangups, signals, files, options.log)
            over_http = None if engine.http is None else f"HTTP at http{'s' if tls else ''}://{engine.http}"
            # The supervisor announces the addresses that all processes share.
            _announce(options.log, engine.addresses if sibling is None else (), limits, over_http, pages)
            with nullcontext() if sibling is None else sibling.serving():
                await trio.sleep_forever()
    except (OSError, DeclarationError) as error:
        fail_to_serve(error, http=http, metrics=options.metrics)


async def _forward(
    endpoints: Sequence[str],
    upstream_tls: SSLContext | None,
    listen: Sequence[str],
    tls: ServerTls | None,
    limits: Limits,
    log: str | None,
    *,
    insecure: bool,
    verbose: bool,
) -> None:
    """Forward all calls to other servers until canceled. SIGHUP reloads the certificate."""
    configure_log(log)
    _warn_of_certificate(tls, log)
    try:
        async with (
            hangups() as signals,
            open_forwarder(
                endpoints,
                listen,
                upstream_tls=upstream_tls,
                tls=tls,
                limits=limits,
                notify=log_report(verbose=verbose),
                insecure=insecure,
            ) as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(reload_at_hangups, signals, files_of(tls), log)
            _announce(log, server.addresses, limits)
            await trio.sleep_forever()
    except OSError as error:
        fail_to_serve(error)


def _announce(form: str | None, addresses: Sequence[str], limits: Limits, *others: str | None) -> None:
    for each in addresses:
        announce(form, f"listening on {each}")
    most = free_descriptors()
    if most is not None and most < limits.connections and limits.connections != Limits().connections:
        tell(
            form,
            f"Warning: --max-connections {limits.connections}: the limit is {most}, because the process "
            "cannot open more files. Raise `ulimit -n`",
            warning=True,
        )
    with open(os.devnull, "rb") as next_file:
        if is_scarce(next_file.fileno()):
            why = "because the process can hardly open more files. Raise `ulimit -n`"
            tell(form, f"Warning: every connection is refused, {why}", warning=True)
    for other in others:
        if other is not None:
            announce(form, other)


def _reload_access(authorizer: Authorizer, path: str) -> None:
    check_regular(path)
    authorizer.replace(load_access(path))


def _warn_of_certificate(tls: ServerTls | None, form: str | None) -> None:
    if tls is not None and (problem := tls.problem) is not None:
        tell(form, f"Warning: --tls-certificate {problem}", warning=True)


_ONLY_WITH_APP = {
    "max_message_size": "the other server limits the size of messages",
    "store": "a forwarder stores nothing",
    "metrics": "a forwarder has no controllers",
    "journal": "a forwarder has no controllers",
    "http": "a forwarder knows no types",
    "process": "a forwarder runs no controllers",
    "processes": "a forwarder has one process",
    "access": "the other server controls access",
}
"""The options that a forwarder does not take, with the reasons."""


def _check_together(context: click.Context, *, forwards: bool) -> None:
    """Raise Usage if an option would have no effect, or if options contradict each other."""
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE and context.params[name]
    }
    if forwards:
        for name, why in _ONLY_WITH_APP.items():
            if name in given:
                raise Usage(f"--{name.replace('_', '-')} requires an APP: {why}")
        if "forward_tls_key" in given and "forward_tls_certificate" not in given:
            raise Usage("--forward-tls-key requires --forward-tls-certificate")
    elif alone := sorted(name for name in given if name.startswith("forward_")):
        raise Usage(f"--{alone[0].replace('_', '-')} requires --forward")
    if {"access", "insecure"} <= given:
        raise Usage("--access controls access, and --insecure allows everything to everyone: give one of them")


def _check_process(options: ProcessOptions, store: str) -> None:
    options.name()
    if not names_shared(store):
        raise Usage(
            f"--process {options.process}: only processes that share a store need names; "
            "give --store etcd://... or postgresql://..."
        )


def _authorizer(path: str) -> Authorizer:
    try:
        return Authorizer(load_access(path))
    except ManifestError as error:
        fail_by(error)
    except (OSError, DeclarationError) as error:
        raise Usage(f"--access: {error}") from error


def _tls(certificate: str | None, key: str | None, client_authority: str | None) -> ServerTls | None:
    if certificate is None:
        if key or client_authority:
            raise Usage("--tls-key and --tls-client-authority require --tls-certificate")
        return None
    check_key(certificate, key, "--tls-key")
    try:
        return server_tls(certificate, key, client_ca=client_authority)
    except OSError as error:
        raise Usage(f"invalid TLS options: {error}") from error


def _parsed(option: str, text: str) -> Address:
    try:
        return address(text)
    except InvalidArgument as error:
        raise Usage(f"{option}: {error}") from error


def _check_address(text: str, *, access: str | None, encrypted: bool, safe: bool, forwards: bool) -> str | None:
    """Raise Usage if the address is invalid or not safe. Return a warning, or None."""
    parsed = _parsed("--listen", text)
    if safe or parsed.path or is_loopback(parsed.host):
        return None
    if access is None:
        what = "do everything that the other server allows" if forwards else "read and write everything"
        by_access = "" if forwards else "control access with --access, "
        raise Usage(
            f"--listen {text}: others can reach this address and {what}. "
            f"Require client certificates with --tls-client-authority, {by_access}"
            "listen on 127.0.0.1, or give --insecure"
        )
    if encrypted:
        return None
    return f"Warning: --listen {text}: without --tls-certificate, anyone on the network path can read the tokens"


def _check_http(text: str, *, access: str | None, encrypted: bool) -> str | None:
    """Raise Usage if the address is invalid or not safe. Return a warning, or None."""
    try:
        host, _ = check_http_address(text, controlled=access is not None)
    except InvalidArgument as error:
        raise Usage(f"--http: {error}") from error
    if encrypted or is_loopback(host):
        return None
    return f"Warning: --http {text}: without --tls-certificate, anyone on the network path can read the tokens"
