"""The commands. Each is imported on first use, so that `headway get` doesn't load what only `serve` needs."""

from __future__ import annotations

import importlib

import click

# The module of each command, its name there, and the first sentence of its docstring, for `--help`.
COMMANDS = {
    "apply": ("_apply", "apply", "Create or update the resources in manifests."),
    "backup": (
        "_backup",
        "backup",
        "Back up the store at URL to FILE, even while a server uses it.",
    ),
    "completion": ("_completion", "completion", "Print a script that enables completion in a shell."),
    "delete": (
        "_delete",
        "delete",
        "Delete one resource.",
    ),
    "diff": (
        "_diff",
        "diff",
        "Show what `apply` would change, without storing anything.",
    ),
    "get": ("_read", "get", "Show one resource."),
    "graph": ("_graph", "graph", "Show what the controllers of APP (module:attribute) manage, watch, read and write."),
    "list": ("_read", "list_", "Show all resources of a type."),
    "restore": ("_backup", "restore", "Create a store at URL from FILE, a backup."),
    "schema": (
        "_schema",
        "schema",
        "Show the fields of types, and check whether a program would misread stored resources.",
    ),
    "serve": ("_serve", "serve", "Run the controllers of APP (module:attribute), and serve its resources to clients."),
    "status": ("_status", "status", "Show the conditions of a resource, by writer."),
    "store": (
        "_store",
        "store",
        "Check, copy or migrate a store, or test a store of your own.",
    ),
    "token": ("_token", "token", "Create tokens for the file of `serve --access`."),
    "types": (
        "_types",
        "types",
        "Show the types of the server, or the fields of one.",
    ),
    "wait": ("_wait", "wait", "Wait until a condition of a resource holds; the resource needn't exist yet."),
    "work": ("_work", "work", "Run the controllers of APP (module:attribute) against a server that has the store."),
    "watch": ("_watch", "watch", "Show all resources of a type, and then every change, until interrupted."),
}


class Commands(click.Group):
    """A group that imports a command when it is used, and imports none to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is given by click
        """Return the names of the commands, for help and completion."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Return the command with this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"headway.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the list of commands for the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, _, sentence) in COMMANDS.items()])
