"""The commands `headway login`, `headway logout` and `headway whoami`."""

from __future__ import annotations

import json
import os
import sys
import time
import webbrowser
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import trio

from headway.base import block_nursery, plain
from headway.cli._connection import open_connection
from headway.cli._exits import Exit, Usage, fail
from headway.cli._running import run
from headway.cli._target import Target
from headway.errors import DeclarationError, HeadwayError, InvalidArgument
from headway.login import KeptLogin, KeptLogins, Place, RenewedToken
from headway.rpc import addresses

if TYPE_CHECKING:
    from headway.login import Asker, Provider, Request

# The variables that say where a window can be opened.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_MOST_TYPES = 20
# The year 9999, the last one of `datetime`.
_LATEST = 253_370_764_800.0


@click.command()
@click.argument("issuer")
@click.option("--client-id", default="headway", show_default=True, help="The id of this program at the issuer.")
@click.option("--scope", "scopes", multiple=True, help="A further scope, such as groups. Repeatable.")
@click.option(
    "--authority", type=click.Path(exists=True, dir_okay=False), help="Trusted authorities of the issuer, in PEM."
)
@click.option("--no-browser", is_flag=True, help="Print the URL to open on this machine.")
@click.option("--device", is_flag=True, help="Print a URL and a code, for a browser on any machine.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="The time for you to log in.",
)
@click.pass_obj
def login(
    target: Target,
    issuer: str,
    client_id: str,
    scopes: tuple[str, ...],
    authority: str | None,
    no_browser: bool,
    device: bool,
    patience: float,
) -> None:
    """Log in at ISSUER, an https:// URL, for the server that --server names.

    Every command for this server then uses the login, and renews it.
    """
    if no_browser and device:
        raise Usage("--no-browser and --device exclude each other: give one")
    _check_server(target)
    path = "" if authority is None else os.path.abspath(authority)

    async def logged_in() -> None:
        try:
            from headway.login import Request, discovered, open_asker
        except DeclarationError as error:
            raise Usage(str(error)) from error
        asked = Request(target.server, client_id, scopes, path, patience)
        place = KeptLogins().of(target.server)
        async with open_asker(path) as asker:
            provider = await discovered(asker, issuer)
            async with place.locked():
                # A folder that cannot be written is an error before the person has logged in.
                pass
            # By itself, the device flow is chosen only where no browser can show the URL.
            by_code = device or (provider.device != "" and not no_browser and not _has_browser())
            made = await (_by_device if by_code else _by_browser)(asker, provider, asked, no_browser)
            async with place.locked():
                place.write(made)
        renewed = "" if made.refresh_token else "; the issuer gave nothing to renew it"
        who = f"{target.server} as {plain(made.subject)}"
        click.echo(f"logged in to {who} until {_clock(made.expires_at)}{renewed}")

    run(logged_in)


@click.command()
@click.argument("issuer", required=False)
@click.pass_obj
def logout(target: Target, issuer: str | None) -> None:
    """Revoke and forget the login for the server that --server names, or all logins of ISSUER."""
    _check_server(target)

    async def logged_out() -> None:
        kept = KeptLogins()
        places = kept.places() if issuer is not None else [kept.of(target.server)]
        found = [each for each in places if each.exists() and (issuer is None or _is_of(each, issuer))]
        problems = [problem for each in found if (problem := await _forget(each))]
        if not found:
            click.echo(f"no login {f'for {target.server}' if issuer is None else f'of {issuer}'}", err=True)
        if problems:
            fail(Exit.UNREACHABLE, "\n".join(f"Error: {each}" for each in problems))

    run(logged_out)


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_obj
def whoami(target: Target, output: str) -> None:
    """Show who you are to the server, until when, and the types that it shows you.

    The server is asked, so that a token that it refuses is an error.
    """

    async def shown() -> None:
        async with open_connection(target) as connection:
            found = _who(target)
            found["types"] = sorted(str(each.name) for each in connection.registry)
        if output == "json":
            click.echo(json.dumps({"server": target.server, **found}))
            return
        click.echo(f"server   {target.server}")
        for name in ("subject", "issuer", "groups"):
            if value := found.get(name):
                click.echo(f"{name:<8} {plain(', '.join(value) if isinstance(value, list) else value)}")
        if expires := found.get("expires_at"):
            click.echo(f"until    {_clock(expires)}{' (then renewed)' if found.get('renewed') else ''}")
        types = found["types"]
        more = f" and {len(types) - _MOST_TYPES} more" if len(types) > _MOST_TYPES else ""
        click.echo(f"types    {', '.join(types[:_MOST_TYPES])}{more}")

    run(shown)


def _who(target: Target) -> dict[str, Any]:
    """Return what is known of the caller, whose token the server has just accepted."""
    token = target.token
    if isinstance(token, RenewedToken):
        login = token.login
        return {
            "subject": login.subject,
            "issuer": login.issuer,
            "groups": list(login.groups),
            "expires_at": login.expires_at,
            "renewed": bool(login.refresh_token),
        }
    text = token if isinstance(token, str) else token()
    if not text:
        return {"subject": "nobody: you have no token, and the server shows this to everyone"}
    from headway.access import JwtRefused, looks_like_jwt, parsed

    if not looks_like_jwt(text):
        # `hw_<accessor>_<secret>`: the accessor is public.
        parts = text.split("_")
        return {"subject": f"token {parts[1]}" if len(parts) == 3 else "a token"}
    try:
        claims = parsed(text).claims
    except JwtRefused:
        return {"subject": "a token"}
    groups = claims.get("groups", [])
    expires = claims.get("exp")
    return {
        "subject": str(claims.get("sub")),
        "issuer": str(claims.get("iss")),
        "groups": [str(each) for each in (groups if isinstance(groups, list) else [groups])],
        "expires_at": expires if isinstance(expires, int | float) else None,
    }


async def _by_browser(asker: Asker, provider: Provider, asked: Request, no_browser: bool) -> KeptLogin:
    from headway.login import by_browser

    async with block_nursery() as nursery:

        def show(url: str) -> None:
            if no_browser or not _has_browser():
                click.echo(f"Open this URL on this machine, and log in:\n{url}", err=True)
                return
            click.echo(f"Log in in the browser. If none opens, open this URL on this machine:\n{url}", err=True)
            # A browser in a terminal does not return before it is closed.
            nursery.start_soon(_open, url)

        return await by_browser(asker, provider, asked, show)


async def _open(url: str) -> None:
    await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)


async def _by_device(asker: Asker, provider: Provider, asked: Request, _: bool) -> KeptLogin:
    from headway.login import by_device

    def show(url: str, code: str) -> None:
        click.echo(f"Open {url} in any browser, and enter the code {code}", err=True)

    return await by_device(asker, provider, asked, show)


def _has_browser() -> bool:
    """Return True if this machine has a browser, and a place to show its window."""
    if sys.platform.startswith("linux") and not any(map(os.environ.get, _DISPLAYS)):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


async def _forget(place: Place) -> str:
    """Forget a login, and return why its issuer has not revoked it, if it has not."""
    async with place.locked():
        try:
            login = place.read()
        except InvalidArgument:
            place.forget()
            click.echo("forgotten: a login that could not be read, and so could not be revoked")
            return ""
        problem, revoked = "", False
        try:
            revoked = await _revoke(login)
        except HeadwayError as error:
            problem = f"{login.issuer} has not revoked the login, which is forgotten here: {error}"
        place.forget()
    click.echo(f"{'revoked and forgotten' if revoked else 'forgotten'}: {plain(login.subject)} at {login.server}")
    return problem


async def _revoke(login: KeptLogin) -> bool:
    from headway.login import discovered, open_asker, revoke

    async with open_asker(login.authority) as asker:
        return await revoke(asker, await discovered(asker, login.issuer), login)


def _is_of(place: Place, issuer: str) -> bool:
    try:
        return place.read().issuer == issuer
    except InvalidArgument:
        # Whose it was cannot be known. `logout` without an issuer forgets it.
        return False


def _check_server(target: Target) -> None:
    try:
        addresses(target.server)
    except InvalidArgument as error:
        raise Usage(f"--server: {error}") from error


def _clock(seconds: float) -> str:
    seconds = min(seconds, _LATEST)
    day = "%H:%M:%S" if seconds - time.time() < 86_400 else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(seconds).astimezone().strftime(day)
