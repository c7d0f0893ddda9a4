"""Reading an access file, which only its owner may access, and adding a token to it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import stat
import tempfile

from headway.access._content import Access, policy_problem
from headway.access._document import entry, read_access
from headway.access._issuers import Issuer
from headway.access._jwks import Keys, check_joserfc
from headway.access._tokens import Token
from headway.base import exposure
from headway.documents import decode
from headway.errors import InvalidArgument, ManifestError, Problem

_ROOT = 0
# At the end of a file. People who start one write an empty `tokens:`, which is not yet a list.
_NO_TOKENS = re.compile(r"^tokens:[ \t]*(\[\])?\s*\Z", re.MULTILINE)


def load_access(path: str | os.PathLike[str]) -> Access:
    """Return the content of an access file. To apply a changed file, load it again and call ``Authorizer.replace``.

    The files that its issuers name are read too. Their paths are relative to the directory of ``path``.

    Raises:
        DeclarationError: it has issuers, and the libraries for them are not installed.
        ManifestError: with the problems of the file. Also if users other than its owner can read or change it (they
            could give themselves access), or if it belongs to neither this process's user nor root.
        OSError: the file cannot be read.
    """
    # Links are not resolved: Kubernetes replaces the directory behind the link of a mounted file at each change.
    directory = os.path.dirname(os.path.abspath(path))
    return read_access(_content(path), source=os.fspath(path), keys_in=functools.partial(_issuer_files, directory))


def _issuer_files(directory: str, issuer: Issuer) -> tuple[Issuer, Keys | None]:
    """Read the files of an issuer. Raises InvalidArgument if one cannot be used."""
    from headway.access._key_sources import KeysUnavailable, check_h11, context_for, keys_in

    check_joserfc()
    if issuer.jwks_file:
        issuer = dataclasses.replace(issuer, jwks_file=os.path.join(directory, issuer.jwks_file))
        try:
            return issuer, keys_in(issuer.jwks_file)
        except KeysUnavailable as error:
            raise InvalidArgument(f"jwks_file {error}; name a file such as keys.json, with a JWKS") from None
    check_h11()
    if issuer.authority:
        issuer = dataclasses.replace(issuer, authority=os.path.join(directory, issuer.authority))
        try:
            context_for(issuer.authority)
        except OSError as error:
            why = error.strerror or error
            raise InvalidArgument(
                f"authority {issuer.authority}: {why}; name a file such as ca.pem, with certificates"
            ) from None
    return issuer, None


def add_token(path: str | os.PathLike[str], token: Token) -> None:
    """Add a token at the end of an access file. The rest of the file stays exactly as it is.

    The file is replaced atomically, so that a concurrent reader sees all of it, before or after. Root may add to a file
    of any user, which stays that user's.

    Raises the errors of `load_access`, and InvalidArgument if the token names a policy that does not exist, or if the
    layout of the file does not allow another token to be added.
    """
    source, path = os.fspath(path), os.path.realpath(path)
    # Root may do this for any owner: the file goes back to its owner, who could have written the same.
    text = _content(path, source, any_owner=os.name == "posix" and os.geteuid() == _ROOT)
    before = read_access(_NO_TOKENS.sub("tokens: []\n", text), source=source)
    for name in token.policies:
        if problem := policy_problem(name, before.policies):
            raise InvalidArgument(f"{source}: {problem}")
    if text and not text.endswith("\n"):
        text += "\n"
    text = _NO_TOKENS.sub("tokens:\n", text)
    for joined in (text + entry(token), f"{text}tokens:\n{entry(token)}"):
        try:
            after = read_access(joined, source=source)
        except ManifestError:
            continue
        kept = (after.policies, after.issuers, after.limits) == (before.policies, before.issuers, before.limits)
        if kept and [*after.tokens] == [
            *before.tokens,
            token,
        ]:
            _replace(path, joined)
            return
    raise InvalidArgument(
        f"{source}: the file must end with its list of tokens, one below the other: add the entry by hand"
    )


def _replace(path: str, text: str) -> None:
    # mkstemp creates a file that only its owner can access, as required.
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f"{os.path.basename(path)}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            before = os.stat(path)
            if os.geteuid() == _ROOT:
                # The server may be another user, who reads the file as its owner or through its group.
                os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _content(path: str | os.PathLike[str], source: str = "", *, any_owner: bool = False) -> str:
    """Return the text of an access file, which must be as private as a secret. With ``any_owner``, it may belong to
    any user.
    """
    source = source or os.fspath(path)
    with open(path, "rb") as file:
        # Check the open file and not the path, which may refer to another file by now.
        found = os.fstat(file.fileno())
        user = found.st_uid if any_owner else os.geteuid()
        if os.name == "posix" and (problem := exposure(found, user)):
            remedy = f"chown {user}" if problem.startswith("belongs") else "chmod 600"
            raise ManifestError([Problem(source, 1, 1, "", f"this file {problem}: {remedy} {source}")])
        content = file.read()
    return decode(content, source)
