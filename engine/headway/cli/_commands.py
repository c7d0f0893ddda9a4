"""The commands, each imported when it is asked for: `headway get` doesn't wait for what `serve` needs."""

from __future__ import annotations

import importlib

import click

# The command's module and its name there; the sentence is the first of its docstring, for `--help`.
COMMANDS = {
    "apply": ("_apply", "apply", "Store what manifests say, where it differs from what is stored."),
    "backup": (
        "_backup",
        "backup",
        "Back the store at URL up into FILE, also while a server runs on it.",
    ),
    "completion": ("_completion", "completion", "Print the script by which a shell completes commands."),
    "delete": (
        "_delete",
        "delete",
        "Delete one resource, as it is now.",
    ),
    "diff": (
        "_diff",
        "diff",
        "Show what `apply` of the same files would change, and store nothing.",
    ),
    "get": ("_read", "get", "Show one resource."),
    "graph": ("_graph", "graph", "Show what the controllers of APP (module:attribute) manage, watch, read and write."),
    "list": ("_read", "list_", "Show all resources of a type."),
    "restore": ("_backup", "restore", "Make a store at URL of FILE, a backup."),
    "schema": ("_schema", "schema", "Show what types look like, and whether a program would misread what is stored."),
    "serve": ("_serve", "serve", "Run the controllers of APP (module:attribute), and offer its resources to clients."),
    "status": ("_status", "status", "Show the conditions of a resource, by who wrote them."),
    "store": (
        "_store",
        "store",
        "Check a store, copy or migrate one, or hold a store of your own to its promises.",
    ),
    "token": ("_token", "token", "Make tokens for the file of `serve --access`."),
    "types": (
        "_types",
        "types",
        "Show the types of the server, or the fields of one.",
    ),
    "wait": ("_wait", "wait", "Wait until a condition of a resource holds; the resource needn't be there yet."),
    "work": ("_work", "work", "Run the controllers of APP (module:attribute) against a server that has the store."),
    "watch": ("_watch", "watch", "Show all resources of a type, and then every change, until interrupted."),
}


class Commands(click.Group):
    """A group that imports a command once it is used, and for its own help none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        """The names, for the help and for completion."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """The command of a name."""
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"headway.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - likewise
        """List the commands in the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, _, sentence) in COMMANDS.items()])
