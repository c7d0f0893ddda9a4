"""The server that the options of `headway` name, with its token and its TLS options."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from headway.cli._exits import Usage
from headway.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    import ssl

    from headway.rpc import Token


@dataclass(frozen=True)
class Target:
    """The address of a server, and the options for connecting to it.

    Files are read only when they are needed, because a command may need no server.

    Attributes:
        given: the context of `headway`, which knows whether an option or a variable has given a value.
    """

    server: str
    tls: bool
    authority: str | None
    certificate: str | None
    key: str | None
    timeout: float
    token_text: str | None = field(repr=False)
    token_path: str | None
    insecure: bool
    given: click.Context = field(repr=False)

    @functools.cached_property
    def token(self) -> Token:
        """The token, or an empty string if there is none: the given one, or the login for this server. Raises Usage."""
        return given_token(self.given, self.token_text, self.token_path) or kept_token(self.server)

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a connection without TLS. Raises Usage."""
        if not self.tls:
            return None
        files = {"tls_authority": self.authority, "tls_certificate": self.certificate, "tls_key": self.key}
        for name, path in files.items():
            _check_file(self.given, name, path)
        return tls_context(self.authority, self.certificate, self.key)


def current_target() -> Target:
    """Return the server that the options of `headway` give."""
    target: Target = click.get_current_context().find_root().obj
    return target


def _check_file(context: click.Context, name: str, path: str | None) -> None:
    """Raise Usage if there is no file at the path that the option ``name``, or its variable, gives."""
    if path is not None and not Path(path).exists():
        by_variable = context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
        option = f"HEADWAY_{name.upper()}" if by_variable else f"--{name.replace('_', '-')}"
        raise Usage(f"{option} {path}: file not found; correct the path, or leave {option} out")


def given_token(context: click.Context, token: str | None, path: str | None) -> Token:
    """Return the token, or an empty string if there is none. Options take precedence over the environment.

    A file is read again when it changes, because a command such as `work` may outlive its first token.
    """
    # Imported here, because completion of commands needs no token.
    from headway.base import check_token
    from headway.rpc import token_file

    if token and path:
        names = ("token", "token_file")
        by_option = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if len(by_option) != 1:
            raise Usage("--token and --token-file (HEADWAY_TOKEN and HEADWAY_TOKEN_FILE) exclude each other: give one")
        if by_option == ["token"]:
            path = None
    if path:
        _check_file(context, "token_file", path)
        try:
            return token_file(path)
        except PermissionError as error:
            raise Usage(f"--token-file: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"--token-file {path} cannot be read: {error}") from error
        except InvalidArgument as error:
            raise Usage(f"--token-file: {error}") from error
        except ValueError as error:
            raise Usage(f"--token-file {error}") from error
    token = token or ""
    try:
        check_token(token)
    except InvalidArgument as error:
        raise Usage(str(error)) from error
    return token


def kept_token(server: str) -> Token:
    """Return the token of the login for a server, or an empty string if there is none. `kept_fresh` renews it."""
    # Imported here, because completion of commands needs no login.
    from headway.login import KeptLogins, RenewedToken

    place = KeptLogins().of(server)
    if not place.exists():
        return ""
    try:
        return RenewedToken(place)
    except (InvalidArgument, Unavailable) as error:
        raise Usage(f"the login for {server}: {error}") from error


def tls_context(
    authority: str | None, certificate: str | None, key: str | None, *, forward: bool = False
) -> ssl.SSLContext:
    """Return the TLS context that the options --tls-… define or, with ``forward``, the options --forward-tls-…."""
    # Imported here, because `ssl` is slow to import.
    from headway.rpc import client_tls

    check_key(certificate, key, "--forward-tls-key" if forward else "--tls-key")
    try:
        return client_tls(authority, certificate=certificate, key=key)
    except OSError as error:
        raise Usage(f"invalid TLS options{' of --forward' if forward else ''}: {error}") from error


def check_key(certificate: str | None, key: str | None, option: str) -> None:
    """Raise Usage if a certificate file contains no private key and ``option``, which gives one, is missing."""
    # Don't read pipes: they can be read only once.
    if certificate is None or key is not None or not Path(certificate).is_file():
        return
    try:
        content = Path(certificate).read_bytes()
    except OSError:
        # The code that uses the file reports this.
        return
    if b"-----BEGIN CERTIFICATE" in content and b"PRIVATE KEY-----" not in content:
        raise Usage(f"no key in {certificate}: give {option}")
