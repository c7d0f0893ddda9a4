"""Text for error messages: safe and bounded text of a program's exceptions and values, and hints. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

LONGEST = 2_000
"""The number of characters of an exception's message that are kept or logged."""
_LONGEST_GUESS = 200
"""The number of characters of a misspelled name that is compared with the known ones."""


Clean = Callable[[str], str]
"""A function that returns a text without what must not be shown."""

CLEANS = "_headway_cleans"
"""The attribute of an exception for the functions that clean its texts."""


ASYNCIO = (
    "That is asyncio, and Headway runs on Trio: use trio.sleep(), httpx instead of aiohttp, and `await "
    "trio.to_thread.run_sync(function)` for a function that blocks or calls asyncio.run(). See docs/guides/asyncio.md"
)
_YIELDED = "trio.run received unrecognized yield message"


def is_from_asyncio(error: BaseException) -> bool:
    """Return True for what an await of asyncio's raises on Trio, which differs by function and version of Python."""
    if isinstance(error, TypeError):
        return str(error).startswith(_YIELDED)
    if not isinstance(error, RuntimeError | AttributeError):
        return False
    # The second one is trio-asyncio's, which a client over the network imports.
    if str(error).startswith(("no running event loop", "You're within a Trio environment")):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] == "asyncio"


def scrubbed(error: BaseException, text: str) -> str:
    """Return a text about an exception without what `scrub` has found in the exception and could not remove."""
    for clean in vars(error).get(CLEANS, ()):
        text = clean(text)
    return text


def error_text(error: BaseException) -> str:
    """Return ``str(error)``, or a sentence if that raises, because its class may belong to the program.

    The result contains nothing that `scrub` should have removed. What asyncio raises on Trio is followed by what to do.
    Half of a surrogate pair, which cannot be sent or stored, is replaced by its escape: see `encodable`.
    """
    try:
        text = encodable(scrubbed(error, str(error)))
        return f"{ended(text)} {ASYNCIO}" if is_from_asyncio(error) else text
    except KeyboardInterrupt:
        raise
    except BaseException as failed:  # noqa: BLE001  # a class of the program's may raise anything
        return f"it has no text, because its __str__ raised {type(failed).__name__}"


def encodable(text: str) -> str:
    """Return the text with escapes for halves of surrogate pairs, which are no characters and cannot be encoded."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def repr_text(value: object, longest: int = 120) -> str:
    """Return ``repr(value)``, or its class and a sentence if that raises. All errors show a given value so.

    The middle of a long text is left out: its end shows where the value ends, and the sentence goes on.
    """
    try:
        text = repr(value)
        if len(text) <= longest:
            return text
        end = longest // 3
        return f"{text[: longest - end - 1]}…{text[-end:]}"
    except KeyboardInterrupt:
        raise
    except BaseException as failed:  # noqa: BLE001  # see above
        return f"a {type(value).__name__}, whose __repr__ raised {type(failed).__name__}"


def bounded(text: str, longest: int = LONGEST) -> str:
    """Return the text, or its beginning and the number of characters left out."""
    more = len(text) - longest
    return text if more <= 0 else f"{text[:longest]}… ({more:,} more)"


def ended(text: str) -> str:
    """Return the text of a sentence with a mark at its end, so that another sentence can follow."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def plain(text: str) -> str:
    """Return the text with escapes for characters that cannot be printed, including line breaks."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


_CLOSE = 0.75
"""The least likeness of a suggestion, from 0 to 1: `queries` is not meant by `retries`, with five of its letters."""


def without_password(url: str) -> str:
    """Return a URL without its password, for display. The URL may be invalid."""
    scheme, found, rest = url.partition("://") if "://" in url else ("", "", url)
    credentials, at, hosts = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{scheme}{found}{user}{':…' if colon else ''}{at}{hosts}" if at else url
    return re.sub("password=[^&]+", "password=…", shown)


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown value: ``; did you mean 'x'?`` if a known value is close.

    Otherwise the hint lists the known values, if any.
    """
    # Imported only for an error, because this takes long.
    import difflib

    names = sorted(known)
    # A long text is close to none, and a stranger's could take seconds to compare.
    close = difflib.get_close_matches(value, names, n=1, cutoff=_CLOSE) if len(value) <= _LONGEST_GUESS else []
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
