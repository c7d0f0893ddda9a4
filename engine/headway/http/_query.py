"""The query and the path of a request. Unknown parameters are refused: a misspelled filter must not be ignored."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from headway.base import did_you_mean
from headway.http._refusal import invalid
from headway.resource import quoted

_MOST = 32
_FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}


class Query:
    """The parameters of a request.

    Args:
        text: the part of the URL after the question mark.
        known: the names that the request may have.

    Raises:
        HttpRefusal: the query cannot be parsed, or has an unknown or a repeated name.
    """

    def __init__(self, text: bytes, known: Collection[str]) -> None:
        try:
            pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST)
        except ValueError as error:
            raise invalid(f"the query cannot be read: {error}") from None
        self._given: dict[str, str] = {}
        for name, value in pairs:
            if name not in known:
                raise invalid(f"unknown parameter {quoted(name)}{did_you_mean(name, known)}")
            if name in self._given:
                raise invalid(f"parameter {name} is given more than once: keep one")
            self._given[name] = value

    def text(self, name: str) -> str:
        """Return the value of a parameter, or an empty text."""
        return self._given.get(name, "")

    def condition(self, name: str) -> str:
        """Return what a resource must have, or an empty text if the parameter is not given.

        An empty value is refused: it comes from a variable that is not set, and the request would be made without its
        condition.
        """
        if self._given.get(name) == "":
            raise invalid(f"{name} is empty: write the {name} that the resource must have, or leave out the parameter")
        return self.text(name)

    def flag(self, name: str) -> bool:
        """Return True if a parameter is given, such as ``?watch``, and not as ``false`` or ``0``."""
        value = self._given.get(name, "false")
        if value not in _FLAGS:
            raise invalid(f"{name}={quoted(value)} must be true or false")
        return _FLAGS[value]

    def number(self, name: str, most: int) -> int:
        """Return the value of a parameter as a whole number from 0 to ``most``; 0 if it is not given."""
        value = self._given.get(name, "0")
        if not (value.isascii() and value.isdecimal() and len(value) < 10) or int(value) > most:
            raise invalid(f"{name}={quoted(value)} must be a whole number from 0 to {most}")
        return int(value)

    def tenancy(self) -> tuple[str, str]:
        """Return the partition and the namespace, whose other name is ``ns``. Those not given are empty."""
        namespace, short = self.text("namespace"), self.text("ns")
        if namespace and short and namespace != short:
            raise invalid(f"namespace={quoted(namespace)} and ns={quoted(short)} contradict each other: keep one")
        return self.text("partition"), namespace or short
