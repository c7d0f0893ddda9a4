"""The options of `headway serve` for the limits of its network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from headway.rpc import Limits

_MIB = 1 << 20
_DEFAULT_LIMITS = Limits()
_COUNT = click.IntRange(min=1)

# Each option, with the limit that it sets, and the factor that converts its value to the limit's unit.
_LIMITS: dict[str, tuple[str, int, click.ParamType[Any], str, str]] = {
    "max_connections": ("connections", 1, _COUNT, "COUNT", "Maximum number of open connections, within `ulimit -n`."),
    "max_peer_connections": ("peer_connections", 1, _COUNT, "COUNT", "The same, from one IP address or IPv6 /64."),
    "max_handshakes": ("handshakes", 1, _COUNT, "COUNT", "Maximum number of connections still in their handshake."),
    "max_peer_handshakes": ("peer_handshakes", 1, _COUNT, "COUNT", "The same, from one IP address or IPv6 /64."),
    "handshake_timeout": (
        "handshake_timeout",
        1,
        click.FloatRange(min=0, min_open=True),
        "SECONDS",
        "Time limit for the handshake of a connection.",
    ),
    "max_message_size": ("message_size", _MIB, click.IntRange(1, 1024), "MIB", "Maximum size of a request, in MiB."),
}


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets the resulting ``limits``."""

    @functools.wraps(command)
    def with_limits(*arguments: Any, **given: Any) -> None:
        wanted = {name: given.pop(option) * unit for option, (name, unit, *_) in _LIMITS.items()}
        command(*arguments, limits=Limits(**wanted), **given)

    for option, (name, unit, kind, metavar, text) in reversed(_LIMITS.items()):
        with_limits = click.option(
            f"--{option.replace('_', '-')}",
            type=kind,
            default=type(getattr(_DEFAULT_LIMITS, name))(getattr(_DEFAULT_LIMITS, name) / unit),
            show_default=True,
            metavar=metavar,
            help=text,
        )(with_limits)
    return with_limits
