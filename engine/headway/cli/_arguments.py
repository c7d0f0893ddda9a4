"""Arguments and options that commands share, with their completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem


def combined(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine several of click's decorators into one."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def complete_type(*asked: Any) -> list[CompletionItem]:
    """Complete a type from the server. The implementation is imported only when it is used."""
    from headway.cli._completing import complete_type

    return complete_type(*asked)


def complete_name(*asked: Any) -> list[CompletionItem]:
    """Complete the name of a resource from the server."""
    from headway.cli._completing import complete_name

    return complete_name(*asked)


one_or_stuck = combined(
    click.argument("type", required=False, shell_complete=complete_type),
    click.argument("name", required=False, shell_complete=complete_name),
    click.option("--partition", default="", help="The partition, if it is not the default one."),
    click.option("--namespace", "-n", default="", help="The namespace, if it is not the default one."),
)

longer_than = click.option(
    "--longer-than",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --stuck: how long the work has been pending.",
)

one_of_a_name = combined(
    click.argument("type", shell_complete=complete_type),
    click.argument("name", shell_complete=complete_name),
    click.option("--partition", default="", help="The partition, if it is not the default one."),
    click.option("--namespace", "-n", default="", help="The namespace, if it is not the default one."),
)

all_of_a_type = combined(
    click.argument("type", shell_complete=complete_type),
    click.option("--partition", default="*", help="Only resources in this partition."),
    click.option("--namespace", "-n", default="*", help="Only resources in this namespace."),
    click.option("--prefix", default="", help="Only resources whose names start with this."),
    click.option(
        "--metadata", default="", metavar="KEY=VALUE,...", help="Only resources that have these metadata entries."
    ),
)
