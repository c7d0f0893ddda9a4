"""The token of a client in a file that something else renews."""

from __future__ import annotations

import os

from headway.base import check_token, read_secret
from headway.rpc._followed_file import FollowedFile


class TokenFile:
    """The token in a file, which is read again when the file changes. Calling it returns the token.

    Something else renews the file, such as Kubernetes for a projected token. While the file cannot be read, the last
    token is used. Create it with `token_file`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._shown = os.fspath(path)
        # The program may change its directory later. Links are not resolved: the renewal may replace one.
        self._path = os.path.abspath(path)
        self._file = FollowedFile(self._path)
        self._seen = self._file.digest()
        self._token = self._read(self._shown)

    def __repr__(self) -> str:
        return f"token_file({self._shown!r})"

    def __call__(self) -> str:
        """Return the token."""
        seen = self._file.digest()
        if seen is not None and seen != self._seen:
            try:
                self._token = self._read(self._path)
            except (OSError, ValueError):
                # It may be written just now. The next call tries again.
                return self._token
            self._seen = seen
        return self._token

    def _read(self, path: str) -> str:
        token = read_secret(path).strip()
        if not token:
            raise ValueError(f"{path} is empty; it must contain a token")
        check_token(token)
        return token


def token_file(path: str | os.PathLike[str]) -> TokenFile:
    """Return the token in a file, for the argument ``token`` of a client that outlives its first token.

    A changed file is used from the next call on, and from the next stream. Each call to the server looks at the file's
    status, which takes microseconds.

    Raises:
        OSError: the file cannot be read. It is PermissionError if other users can read it.
        ValueError: it is empty, or not text.
        InvalidArgument: it does not contain a token.
    """
    return TokenFile(path)
