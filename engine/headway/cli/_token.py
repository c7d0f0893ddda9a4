"""The command `headway token`."""

from __future__ import annotations

import re
import time

import click

from headway.access import add_token, entry, new_token
from headway.cli._running import Usage, fail_by
from headway.errors import HeadwayError, InvalidArgument

_SPAN = re.compile(r"([1-9][0-9]{0,8})([smhd])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group()
def token() -> None:
    """Create tokens for the file of `serve --access`."""


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


def _seconds(text: str) -> int:
    found = _SPAN.match(text)
    if found is None:
        raise Usage(
            f"--expires-in {text!r} is not a valid duration: write a number and s, m, h or d, such as 12h or 90d"
        )
    return int(found[1]) * _SECONDS[found[2]]
