"""The command `headway token`."""

from __future__ import annotations

import math
import re
import time

import click
import trio

from headway.access import Authorizer, Identity, add_token, entry, keep_keys, load_access, new_token
from headway.base import read_secret
from headway.cli._connection import NO_TOKEN
from headway.cli._exits import Exit, Usage, fail
from headway.cli._running import fail_by, run
from headway.cli._target import Target
from headway.errors import DeclarationError, HeadwayError, InvalidArgument, ManifestError, PermissionDenied
from headway.events import IssuerFailed
from headway.login import kept_fresh
from headway.rpc import TOKEN_HEADER

_SPAN = re.compile(r"([1-9][0-9]{0,8})([smhd])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group()
def token() -> None:
    """Create tokens for the file of `serve --access`, check tokens and JWTs, and show the token of your login."""


@token.command()
@click.argument("policies", nargs=-1, required=True)
@click.option("--description", default="", help="Its owner and purpose.")
@click.option("--expires-in", metavar="TIME", help="Such as 12h or 90d. By default it never expires.")
@click.option("--into", type=click.Path(exists=True, dir_okay=False), help="The access file to add it to.")
def new(policies: tuple[str, ...], description: str, expires_in: str | None, into: str | None) -> None:
    """Create a token with these POLICIES.

    The token is printed to stdout, and cannot be shown again. Its entry for the access file is added to the file, or
    printed to stderr.
    """
    expires_at = None if expires_in is None else int(time.time()) + _seconds(expires_in)
    try:
        text, made = new_token(policies, expires_at=expires_at, description=description)
    except InvalidArgument as error:
        raise Usage(str(error)) from error
    if into is None:
        click.echo(f"Put this under `tokens:` in the access file:\n\n{entry(made)}", err=True)
    else:
        try:
            add_token(into, made)
        except HeadwayError as error:
            fail_by(error)
        except OSError as error:
            raise Usage(f"--into: {error}") from error
        click.echo(f"{into}: token {made.accessor} added; send SIGHUP to a server to reload the file", err=True)
    click.echo(text)


@token.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--access", required=True, type=click.Path(exists=True, dir_okay=False), help="The access file of the server."
)
def check(file: str, access: str) -> None:
    """Show what the token in FILE is for a server with this access file, or why it would be refused.

    FILE has a token or a JWT. The keys of its issuer are read as a server does.
    """
    try:
        text = read_secret(file).strip()
        authorizer = Authorizer(load_access(access))
    except ManifestError as error:
        fail_by(error)
    except (OSError, UnicodeDecodeError, DeclarationError) as error:
        raise Usage(str(error)) from error

    async def checked() -> None:
        problems: list[str] = []

        def report(event: object) -> None:
            if isinstance(event, IssuerFailed):
                problems.append(f"the keys of {event.issuer} cannot be read: {event.why}")

        metadata = {TOKEN_HEADER: text}
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_keys, authorizer, report)
            await authorizer.wait_for_keys(metadata)
            nursery.cancel_scope.cancel()
        try:
            identity = authorizer.identify(metadata)
        except PermissionDenied:
            refusal = authorizer.refusal(metadata)
            if refusal.reason == "no_keys" and not problems:
                problems.append(f"{refusal.issuer} has not sent them within 5 s")
            why = "; ".join([f"refused: {refusal.why}", *problems])
            fail(Exit.REFUSED, f"Error: {why}")
        _show(identity)

    run(checked)


@token.command()
@click.pass_obj
def show(target: Target) -> None:
    """Print the token that commands for --server send, renewed if it is due: that of your login, or the given one.

    The form of the live page takes it, and so does the header of a program such as curl. Whoever has it is you.
    """

    async def shown() -> None:
        given = target.token
        if not given:
            fail(Exit.REFUSED, f"Error: {NO_TOKEN}")
        async with kept_fresh(given):
            click.echo(given if isinstance(given, str) else given())

    run(shown)


def _show(identity: Identity) -> None:
    click.echo(f"caller    {identity.name}")
    click.echo(f"policies  {', '.join(identity.token.policies if identity.token else ()) or 'none'}")
    seconds = identity.expires_in()
    click.echo("expires   never" if math.isinf(seconds) else f"expires   in {seconds:,.0f} s")


def _seconds(text: str) -> int:
    found = _SPAN.match(text)
    if found is None:
        raise Usage(
            f"--expires-in {text!r} is not a valid duration: write a number and s, m, h or d, such as 12h or 90d"
        )
    return int(found[1]) * _SECONDS[found[2]]
