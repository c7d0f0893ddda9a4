"""google.protobuf.Duration, the wire form of a ``timedelta`` field."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import betterproto2


@dataclass(eq=False, repr=False)
class Duration(betterproto2.Message):
    """A signed span of time; seconds and nanos never have opposite signs."""

    seconds: int = betterproto2.field(1, betterproto2.TYPE_INT64)
    nanos: int = betterproto2.field(2, betterproto2.TYPE_INT32)

    @staticmethod
    def from_wrapped(wrapped: timedelta) -> "Duration":
        """Return the message for a timedelta."""
        microseconds = wrapped // timedelta(microseconds=1)
        sign = -1 if microseconds < 0 else 1
        seconds, rest = divmod(abs(microseconds), 1_000_000)
        return Duration(seconds=sign * seconds, nanos=sign * rest * 1000)

    def to_wrapped(self) -> timedelta:
        """Return the timedelta, truncated to microseconds."""
        sign = -1 if self.nanos < 0 else 1
        return timedelta(seconds=self.seconds, microseconds=sign * (abs(self.nanos) // 1000))

    def to_dict(self, **_options: Any) -> Any:
        """Return the duration in protobuf's JSON form: ``"1.5s"``."""
        sign = "-" if self.seconds < 0 or self.nanos < 0 else ""
        fraction = f".{abs(self.nanos):09}".rstrip("0").rstrip(".")
        return f"{sign}{abs(self.seconds)}{fraction}s"

    @classmethod
    def from_dict(cls, value: Any, *, ignore_unknown_fields: bool = False) -> Self:
        """Return a duration from its JSON form in protobuf."""
        if not isinstance(value, str):
            return super().from_dict(value, ignore_unknown_fields=ignore_unknown_fields)
        seconds, _, fraction = value.removesuffix("s").removeprefix("-").partition(".")
        if not value.endswith("s") or not (seconds + fraction).isdecimal() or len(fraction) > 9:
            raise ValueError(f"{value!r} is not a valid duration; expected a value such as '1.5s'")
        sign = -1 if value.startswith("-") else 1
        return cls(seconds=sign * int(seconds or 0), nanos=sign * int(fraction.ljust(9, "0")))
