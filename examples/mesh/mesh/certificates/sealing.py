"""Sealing: keys of roots are stored encrypted, with a key from a file of the operator."""

from __future__ import annotations

import os

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from headway.base import read_secret

_MOST = 8
_EXAMPLE = "make one with `python -m mesh.certificates FILE`"


class WrongKeyFile(ValueError):
    """A key file cannot be used, or does not open what is stored. The text names the file and has no key in it."""


class Sealing:
    """Encrypts with the first key of a file, and decrypts with each of them.

    Args:
        path: the file, which no other user may read: one key in each line, the one to encrypt with first.

    Raises:
        WrongKeyFile: the file is missing, other users can read it, or it has something else in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            lines = read_secret(self.path).split()
        except OSError as error:
            raise WrongKeyFile(f"the key file cannot be used: {error}") from error
        except UnicodeDecodeError:
            raise self._wrong("it is not a text") from None  # the error has the content
        if not 0 < len(lines) <= _MOST:
            raise self._wrong(f"it has {len(lines)} lines, and must have 1 to {_MOST}")
        keys = []
        for number, line in enumerate(lines, 1):
            try:
                keys.append(Fernet(line))
            except ValueError:
                raise self._wrong(f"its line {number} is not a key: 32 bytes in URL-safe base64") from None
        self._keys = MultiFernet(keys)

    def _wrong(self, problem: str) -> WrongKeyFile:
        return WrongKeyFile(f"the key file {self.path} is invalid: {problem}; {_EXAMPLE}")

    def seal(self, secret: bytes) -> bytes:
        """Return a secret, encrypted."""
        return self._keys.encrypt(secret)

    def unseal(self, sealed: bytes) -> bytes:
        """Return what was sealed.

        Raises:
            WrongKeyFile: it was sealed with a key that is not in the file, or has changed since.
        """
        try:
            return self._keys.decrypt(sealed)
        except InvalidToken:
            raise WrongKeyFile(
                f"the key file {self.path} does not open the stored key of the root: every process needs the file with "
                "which it was sealed; a new key goes into the first line, above the old one"
            ) from None
