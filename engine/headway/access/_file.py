"""The access file: read by its owner alone, whole or not at all; and one more token in it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile

from headway.access._authorizer import Access, policy_problem
from headway.access._document import entry, read_access
from headway.access._tokens import Token
from headway.errors import InvalidArgument, ManifestError, Problem

_ROOT = 0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# At a file's end: whoever has begun one writes the former, which says nothing yet.
_NO_TOKENS = re.compile(r"^tokens:[ \t]*(\[\])?\s*\Z", re.MULTILINE)


def load_access(path: str | os.PathLike[str]) -> Access:
    """What an access file says. To read a changed file again, load it again and ``Authorizer.replace`` what was.

    Raises ManifestError with all of its problems, or when others than its owner may read or change it (what they
    put there would let them in), or when it belongs to neither this process's user nor root; OSError when it can't be
    read.
    """
    return read_access(_content(path), source=os.fspath(path))


def add_token(path: str | os.PathLike[str], token: Token) -> None:
    """Add a token at the end of an access file; what else stands there stays as it is, to the letter.

    The file is replaced in one step, so that whoever reads it meanwhile finds all of it, before or after. Raises as
    `load_access` does, and InvalidArgument when the token names a policy that isn't there, or when the file's tokens
    stand in another way than one more can be added to. Root may add to a file of any user's, which stays that user's.
    """
    source, path = os.fspath(path), os.path.realpath(path)
    # Root gives the file back to its owner, who could have written the same there.
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
        if after.policies == before.policies and [*after.tokens] == [*before.tokens, token]:
            _replace(path, joined)
            return
    raise InvalidArgument(
        f"{source}: its tokens don't stand at its end, one below the other: put a new one's entry there by hand"
    )


def _replace(path: str, text: str) -> None:
    # Made for its owner alone, as the file has to be.
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f"{os.path.basename(path)}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            owner = os.stat(path)
            if owner.st_uid != os.geteuid():
                # The server that reads it is another user than root, who writes it.
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _content(path: str | os.PathLike[str], source: str = "", *, any_owner: bool = False) -> str:
    """Return the text of an access file that only its owner can reach: this process's user, root, or any user."""
    source = source or os.fspath(path)
    with open(path, "rb") as file:
        # Asked of what is open, not of the path, which may be another file by then.
        found = os.fstat(file.fileno())
        mode = stat.S_IMODE(found.st_mode)
        # Elsewhere these bits say nothing.
        if os.name == "posix" and mode & _OTHERS:
            message = f"others than its owner can reach this file (mode {mode:04o}): chmod 600 {source}"
            raise ManifestError([Problem(source, 1, 1, "", message)])
        if os.name == "posix" and not any_owner and found.st_uid not in (os.geteuid(), _ROOT):
            message = f"this file belongs to user {found.st_uid}, who can replace it: chown {os.geteuid()} {source}"
            raise ManifestError([Problem(source, 1, 1, "", message)])
        content = file.read()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode().split("\n")
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise ManifestError([Problem(source, len(before), len(before[-1]) + 1, "", message)]) from error
