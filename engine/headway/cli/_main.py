"""The command `headway` and its options. `_commands.py` lists the modules of the subcommands."""

from __future__ import annotations

import click

from headway.cli._commands import Commands

_EXISTING = click.Path(exists=True, dir_okay=False)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="headway", message="headway %(version)s")
@click.option(
    "--server",
    envvar="HEADWAY_SERVER",
    default="127.0.0.1:7070",
    show_default=True,
    show_envvar=True,
    help="The server's address, or several, separated by commas.",
)
@click.option("--tls", is_flag=True, envvar="HEADWAY_TLS", help="Use TLS with the system's trusted authorities.")
@click.option(
    "--tls-authority", type=_EXISTING, envvar="HEADWAY_TLS_AUTHORITY", help="Trusted authorities; implies --tls."
)
@click.option(
    "--tls-certificate", type=_EXISTING, envvar="HEADWAY_TLS_CERTIFICATE", help="The client certificate to send."
)
@click.option("--tls-key", type=_EXISTING, envvar="HEADWAY_TLS_KEY", help="Its private key, if in a separate file.")
@click.option("--token", envvar="HEADWAY_TOKEN", show_envvar=True, help="The token that identifies you.")
@click.option(
    "--token-file", type=_EXISTING, envvar="HEADWAY_TOKEN_FILE", show_envvar=True, help="A file with the token."
)
@click.option(
    "--insecure", is_flag=True, envvar="HEADWAY_INSECURE", help="Send the token to other hosts even without TLS."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Timeout of each call, in seconds.",
)
@click.pass_context
def main(
    context: click.Context,
    server: str,
    tls: bool,
    tls_authority: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
    token: str | None,
    token_file: str | None,
    insecure: bool,
    timeout: float,
) -> None:
    """Serve an app, and work with the resources of any Headway server.

    \b
    Exit codes:
      0    success
      1    the server rejected the request, or denied permission
      2    wrong usage; an unknown or ambiguous type
      3    resource not found
      4    an invalid manifest or access file
      5    no answer: the server cannot be reached, or failed
      6    `wait` timed out
      7    `diff` and `schema diff` found differences, `apply --dry-run` something to store, `store` problems,
           `store migrate` resources that it could not rewrite
      70   `serve` or `work` received a signal to stop, but something blocked it
      130  interrupted (`serve` and `work` exit with 0 then)
    """
    # Imported here, because help doesn't need them.
    from headway.cli._connection import Target
    from headway.cli._given_token import given_token

    secure = tls or tls_authority is not None or tls_certificate is not None
    shown = given_token(context, token, token_file)
    context.obj = Target(server, secure, tls_authority, tls_certificate, tls_key, timeout, shown, insecure)
