"""The command `headway`, its options, and the list of its subcommands.

Each subcommand is imported on first use, so that `headway get` doesn't load what only `serve` needs. `--version`,
`--help` and the completion of commands load nothing of Headway outside of this package.
"""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from headway._version import VERSION
from headway.cli._written import check_output

# Files are looked at only by a command that connects to a server, and the variables may be set for others.
_FILE = click.Path(dir_okay=False)

# The module of each command, its name there, and the first sentence of its docstring, for `--help`.
_COMMANDS = {
    "apply": ("_apply", "apply", "Create or update the resources in manifests."),
    "backup": ("_store", "backup", "Back up the store at URL to FILE, even while a server uses it."),
    "completion": ("_completion", "completion", "Print a script that enables completion in a shell."),
    "delete": ("_resources", "delete", "Delete one resource."),
    "describe": (
        "_describe",
        "describe",
        "Show one resource: its content, owners, conditions, events, and why it is, or is not, done.",
    ),
    "diff": ("_apply", "diff", "Show what `apply` would change, without storing anything."),
    "edit": ("_edit", "edit", "Edit one resource in your editor, and store it if it has not changed meanwhile."),
    "events": (
        "_events",
        "events",
        "Show what controllers have recorded of resources, for their users.",
    ),
    "get": ("_resources", "get", "Show one resource."),
    "graph": ("_graph", "graph", "Show what the controllers of APP (module:attribute) manage, watch, read and write."),
    "kubernetes": (
        "_kubernetes",
        "kubernetes",
        "Print the CustomResourceDefinitions of APP, and the rights that it needs in a Kubernetes cluster.",
    ),
    "leases": (
        "_leases",
        "leases",
        "Show which process holds which lease: since when, its last renewal, and when it ends without another one.",
    ),
    "list": ("_resources", "list_", "Show all resources of a type."),
    "login": ("_login", "login", "Log in at ISSUER, an https:// URL, for the server that --server names."),
    "logout": (
        "_login",
        "logout",
        "Revoke and forget the login for the server that --server names, or all logins of ISSUER.",
    ),
    "new": ("_new", "new", "Write a first project into the new folder NAME: an app, its proof, and a manifest."),
    "pause": ("_pause", "pause", "Let no process start a reconcile of a controller, until `resume`."),
    "peer": ("_peer", "peer", "Copy resources between two servers, each with its own store."),
    "quota": ("_quota", "quota", "Show the quotas of partitions and namespaces with their use, or set one."),
    "restore": ("_store", "restore", "Create a store at URL from FILE, a backup."),
    "resume": ("_pause", "resume", "Let a paused controller reconcile again, in every process."),
    "retry": ("_retry", "retry", "Let a controller reconcile a resource now, whatever delay it has."),
    "run": (
        "_run",
        "run_app",
        "Run the controllers of APP (module:attribute) on the objects of a Kubernetes cluster.",
    ),
    "schema": (
        "_schema",
        "schema",
        "Show the fields of types, and check whether a program would misread stored resources.",
    ),
    "serve": ("_serve", "serve", "Run the controllers of APP (module:attribute), and serve its resources to clients."),
    "status": ("_resources", "status", "Show the conditions of a resource, by writer."),
    "store": ("_store", "store", "Check, copy or migrate a store, or test a store of your own."),
    "token": (
        "_token",
        "token",
        "Create tokens for the file of `serve --access`, check tokens and JWTs, and show the token of your login.",
    ),
    "top": ("_top", "top", "Show the controllers and queues of running processes, live."),
    "types": ("_schema", "types", "Show the types and topics of the server, or the fields of one."),
    "wait": ("_resources", "wait", "Wait until a condition of a resource holds; the resource needn't exist yet."),
    "watch": ("_resources", "watch", "Show all resources of a type, and then every change, until interrupted."),
    "whoami": ("_login", "whoami", "Show who you are to the server, until when, and the types that it shows you."),
    "why": ("_why", "why", "Show why a resource is not done: what each controller does about it, and since when."),
    "work": ("_work", "work", "Run the controllers of APP (module:attribute) against a server that has the store."),
}


class _Commands(click.Group):
    """A group that imports a command when it is used, and imports none to show its own help."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line."""
        check_output()
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is given by click
        """Return the names of the commands, for help and completion."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Return the command with this name, or None."""
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"headway.cli.{module}"), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names of commands and the options that start with the typed text."""
        listed = [
            CompletionItem(name, help=click.Command(name, help=sentence).get_short_help_str())
            for name, (_, _, sentence) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*listed, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments. Raises click.UsageError with a suggestion for an unknown command."""
        if args and args[0] not in _COMMANDS and not ctx.resilient_parsing:
            from headway.base import did_you_mean

            ctx.fail(f"command {args[0]!r} not found{did_you_mean(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the list of commands for the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, _, sentence) in _COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, message="headway %(version)s")
@click.option(
    "--server",
    envvar="HEADWAY_SERVER",
    default="127.0.0.1:7070",
    show_default=True,
    show_envvar=True,
    help="The server's address, or several, separated by commas.",
)
@click.option("--tls", is_flag=True, envvar="HEADWAY_TLS", help="Use TLS with the system's trusted authorities.")
@click.option("--tls-authority", type=_FILE, envvar="HEADWAY_TLS_AUTHORITY", help="Trusted authorities; implies --tls.")
@click.option("--tls-certificate", type=_FILE, envvar="HEADWAY_TLS_CERTIFICATE", help="The client certificate to send.")
@click.option("--tls-key", type=_FILE, envvar="HEADWAY_TLS_KEY", help="Its private key, if in a separate file.")
@click.option("--token", envvar="HEADWAY_TOKEN", show_envvar=True, help="The token that identifies you.")
@click.option("--token-file", type=_FILE, envvar="HEADWAY_TOKEN_FILE", show_envvar=True, help="A file with the token.")
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
           `store migrate` resources that it left in another version, `why --stuck` something that is stuck
      70   `serve`, `work` or `run` received a signal to stop, but something blocked it
      74   standard output could not be written (141 if its reader has left)
      130  interrupted (`serve`, `work` and `run` exit with 0 then)
    """
    # Imported here, because help doesn't need it.
    from headway.cli._exits import end_at_signals
    from headway.cli._target import Target

    end_at_signals()
    secure = tls or tls_authority is not None or tls_certificate is not None
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal may lack letters of the stored texts. They are escaped, as on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = (server, secure, tls_authority, tls_certificate, tls_key, timeout, token, token_file, insecure)
    context.obj = Target(*options, context)
