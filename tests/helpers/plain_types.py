"""Messages of one field each, for tests in which their content says little."""

from __future__ import annotations

import headway
from headway import field


@headway.message(name="tests.plain.Team")
class Team:
    note: str = field(1)


@headway.message(name="tests.plain.Rate")
class Rate:
    cents: int = field(1)


@headway.message(name="tests.plain.Note")
class Note:
    text: str = field(1)


@headway.message(name="tests.plain.Thing")
class Thing:
    name: str = field(1)
