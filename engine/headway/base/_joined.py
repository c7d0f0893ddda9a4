"""Joining small parts of a stream into pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def joined(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Join parts, in order, into pieces of at least ``size`` bytes, apart from the last one.

    Each piece is sent at once. Between two pieces, the sender gives other tasks a turn.
    """
    held: list[bytes] = []
    gathered = 0
    for part in parts:
        held.append(part)
        gathered += len(part)
        if gathered >= size:
            yield b"".join(held)
            held, gathered = [], 0
    if held:
        yield b"".join(held)
