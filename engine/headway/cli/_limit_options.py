"""The options of `headway serve` that say how much clients may ask of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from headway.rpc import Limits

_MIB = 1 << 20
_DEFAULTS = Limits()
_COUNT = click.IntRange(min=1)

# Each option with the limit that it sets, and what one of it is in the limit's unit.
_OPTIONS: dict[str, tuple[str, int, click.ParamType[Any], str, str]] = {
    "max_connections": ("connections", 1, _COUNT, "COUNT", "Connections open at once, as far as `ulimit -n` allows."),
    "max_peer_connections": ("peer_connections", 1, _COUNT, "COUNT", "Of these, from one IP address or IPv6 /64."),
    "max_handshakes": ("handshakes", 1, _COUNT, "COUNT", "Connections at once that have not finished their handshake."),
    "max_peer_handshakes": ("peer_handshakes", 1, _COUNT, "COUNT", "Of these, from one IP address or IPv6 /64."),
    "handshake_timeout": (
        "handshake_timeout",
        1,
        click.FloatRange(min=0, min_open=True),
        "SECONDS",
        "Time in which a connection must finish its handshake.",
    ),
    "max_message_size": ("message_size", _MIB, click.IntRange(1, 1024), "MIB", "Size of one request, in MiB."),
}


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command. It is called with ``limits``: those that they make."""

    @functools.wraps(command)
    def with_limits(*arguments: Any, **given: Any) -> None:
        wanted = {name: given.pop(option) * unit for option, (name, unit, *_) in _OPTIONS.items()}
        command(*arguments, limits=Limits(**wanted), **given)

    for option, (name, unit, kind, metavar, text) in reversed(_OPTIONS.items()):
        with_limits = click.option(
            f"--{option.replace('_', '-')}",
            type=kind,
            default=type(getattr(_DEFAULTS, name))(getattr(_DEFAULTS, name) / unit),
            show_default=True,
            metavar=metavar,
            help=text,
        )(with_limits)
    return with_limits
