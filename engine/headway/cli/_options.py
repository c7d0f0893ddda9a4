"""The arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several of click's decorators as one."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


one_of_a_name = _together(
    click.argument("type"),
    click.argument("name"),
    click.option("--partition", default="", help="Where it is not the default one."),
    click.option("--namespace", "-n", default="", help="Where it is not the default one."),
)

all_of_a_type = _together(
    click.argument("type"),
    click.option("--partition", default="*", help="Only those in this partition."),
    click.option("--namespace", "-n", default="*", help="Only those in this namespace."),
    click.option("--prefix", default="", help="Only those whose names begin with this."),
)
