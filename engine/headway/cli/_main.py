"""The command `headway`: its options. Which command is in which file is in `_commands.py`."""

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
@click.option("--tls", is_flag=True, envvar="HEADWAY_TLS", help="Speak TLS, and believe what the system believes.")
@click.option("--tls-authority", type=_EXISTING, envvar="HEADWAY_TLS_AUTHORITY", help="Whom to believe; implies --tls.")
@click.option("--tls-certificate", type=_EXISTING, envvar="HEADWAY_TLS_CERTIFICATE", help="The certificate to show.")
@click.option("--tls-key", type=_EXISTING, envvar="HEADWAY_TLS_KEY", help="Its key, if it is in a file of its own.")
@click.option("--token", envvar="HEADWAY_TOKEN", show_envvar=True, help="What the server knows you by, if it asks.")
@click.option("--token-file", type=_EXISTING, envvar="HEADWAY_TOKEN_FILE", show_envvar=True, help="A file with it.")
@click.option(
    "--insecure", is_flag=True, envvar="HEADWAY_INSECURE", help="Send the token to other hosts without TLS, too."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds for each call.",
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
      0    done
      1    the server refused, or doesn't let you in
      2    wrong usage; an unknown or ambiguous type
      3    there is no such resource
      4    something is wrong with a manifest, or with an access file
      5    no answer: the server can't be reached, or failed
      6    `wait` has waited long enough
      7    `diff` and `schema diff` found differences, `apply --dry-run` something to store, `store` something wrong,
           `store migrate` objects that it could not rewrite
      70   `serve` was told to end, and something did not
      130  interrupted (`serve` ends with 0 then)
    """
    # Only a command that is run needs the way to a server; help doesn't.
    from headway.cli._connection import Target
    from headway.cli._given_token import given_token

    secure = tls or tls_authority is not None or tls_certificate is not None
    shown = given_token(context, token, token_file)
    context.obj = Target(server, secure, tls_authority, tls_certificate, tls_key, timeout, shown, insecure)
