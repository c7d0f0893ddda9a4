"""The token that a command shows: from its options, or from the environment."""

from __future__ import annotations

import click
from click.core import ParameterSource

from headway._private_files import read_secret
from headway.cli._exits import Usage


def given_token(context: click.Context, token: str | None, path: str | None) -> str:
    """The token of ``--token`` or of the file of ``--token-file``; empty for none. Options win over the environment."""
    if token and path:
        names = ("token", "token_file")
        by_option = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if len(by_option) != 1:
            raise Usage("--token and --token-file (HEADWAY_TOKEN and HEADWAY_TOKEN_FILE) are two tokens: give one")
        if by_option == ["token"]:
            path = None
    if path:
        try:
            token = read_secret(path).strip()
        except PermissionError as error:
            raise Usage(f"--token-file: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"--token-file {path} can't be read: {error}") from error
        if not token:
            raise Usage(f"--token-file {path} is empty; it must hold a token")
    if token and not (token.isascii() and token.isprintable()):
        # Never with the text itself: it is a secret, nearly right as it may be.
        raise Usage("the token is none: it must be one line of plain letters, as `headway token new` prints it")
    return token or ""
