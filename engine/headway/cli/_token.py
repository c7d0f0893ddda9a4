"""`headway token`."""

from __future__ import annotations

import re
import time

import click

from headway.access import add_token, entry, new_token
from headway.cli._exits import Usage, fail_by
from headway.errors import HeadwayError, InvalidArgument

_SPAN = re.compile(r"([1-9][0-9]{0,8})([smhd])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group()
def token() -> None:
    """Make tokens for the file of `serve --access`."""


@token.command()
@click.argument("policies", nargs=-1, required=True)
@click.option("--description", default="", help="Whose it is, and what for.")
@click.option("--expires-in", metavar="TIME", help="Such as 12h or 90d. Unless given, it doesn't expire.")
@click.option("--into", type=click.Path(exists=True, dir_okay=False), help="An access file that it is added to.")
def new(policies: tuple[str, ...], description: str, expires_in: str | None, into: str | None) -> None:
    """Make a token that has these POLICIES.

    The token goes to stdout, this once and never again. What the access file keeps of it goes into the file, or to
    stderr.
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
        click.echo(f"{into}: token {made.accessor} added; SIGHUP has a server read the file again", err=True)
    click.echo(text)


def _seconds(text: str) -> int:
    found = _SPAN.match(text)
    if found is None:
        raise Usage(f"--expires-in {text!r} is no time: write a number and s, m, h or d, such as 12h or 90d")
    return int(found[1]) * _SECONDS[found[2]]
