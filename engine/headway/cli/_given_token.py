"""Get the token of a command from its options or the environment."""

from __future__ import annotations

import click
from click.core import ParameterSource

from headway._private_files import read_secret
from headway.cli._exits import Usage


def given_token(context: click.Context, token: str | None, path: str | None) -> str:
    """Return the token, or an empty string if there is none. Options take precedence over the environment."""
    if token and path:
        names = ("token", "token_file")
        by_option = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if len(by_option) != 1:
            raise Usage("--token and --token-file (HEADWAY_TOKEN and HEADWAY_TOKEN_FILE) exclude each other: give one")
        if by_option == ["token"]:
            path = None
    if path:
        try:
            token = read_secret(path).strip()
        except PermissionError as error:
            raise Usage(f"--token-file: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"--token-file {path} cannot be read: {error}") from error
        if not token:
            raise Usage(f"--token-file {path} is empty; it must contain a token")
    if token and not (token.isascii() and token.isprintable()):
        # Never show the text: even an invalid token may be nearly right.
        raise Usage("invalid token: it must be one line of ASCII characters, as printed by `headway token new`")
    return token or ""
