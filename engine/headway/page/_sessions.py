"""The sessions of browsers: a cookie in place of a token. No I/O; the clock is an argument.

The token stays here. The browser gets a random name for it, in a cookie that no script can read. The token is checked
again for each request. If it is revoked or gets other policies, its sessions end for good: the caller of `begin` has to
arrange that.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

from headway.errors import HeadwayError, Unauthenticated

SECONDS = 12 * 3600.0
"""The duration of a session."""
ACCOUNT_SESSIONS = 16
"""The number of sessions of one token. A further one ends the oldest."""
SESSIONS = 4096

End = Callable[[float, HeadwayError], None]
ENDED = "the session has ended: sign in again"


class Session:
    """A session of one browser.

    Attributes:
        token: the text of the token.
        account: the public name of the token.
        csrf: a secret that the page sends with each change, and that no other site can read.
        ends: functions that end the streams of the session.
        ended: called once when the session ends.
    """

    def __init__(self, token: str, account: str, until: float) -> None:
        self.token = token
        self.account = account
        self.until = until
        self.csrf = secrets.token_urlsafe(24)
        self.ends: set[End] = set()
        self.ended: Callable[[], object] = lambda: None


class Sessions:
    """The sessions of a server. Times are in seconds on a clock that never goes back."""

    def __init__(self) -> None:
        # By a digest of the cookie, so that no name of a session can be guessed from the time of a comparison.
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, token: str, account: str, now: float, most: float = SECONDS) -> tuple[str, Session]:
        """Begin a session of at most this many seconds, and return it with the text of its cookie."""
        own = [key for key, each in self._sessions.items() if each.account == account]
        for key in own[: max(len(own) - ACCOUNT_SESSIONS + 1, 0)]:
            self._drop(key)
        while len(self._sessions) >= SESSIONS:
            self._drop(next(iter(self._sessions)))
        text = secrets.token_urlsafe(32)
        session = self._sessions[_digest(text)] = Session(token, account, now + min(most, SECONDS))
        return text, session

    def find(self, text: str, now: float) -> Session | None:
        """Return the session of a cookie, or None if it has ended."""
        key = _digest(text)
        session = self._sessions.get(key)
        if session is not None and session.until <= now:
            self._drop(key)
            return None
        return session

    def end(self, text: str) -> None:
        """End a session and its streams."""
        self._drop(_digest(text))

    def _drop(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.ended()
            for end in list(session.ends):
                end(0, Unauthenticated(ENDED))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
