"""The Status with which an API server refuses a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.testing.kubernetes._kinds import Kind
from headway.testing.kubernetes._values import Cause

_CHANGED = "the object has been modified; please apply your changes to the latest version and try again"


class Refused(Exception):
    """A refusal.

    Attributes:
        code: the code of HTTP.
        status: the Status.
    """

    def __init__(self, code: int, status: dict[str, Any]) -> None:
        self.code = code
        self.status = status
        super().__init__(status["message"])


def of(
    code: int,
    reason: str,
    message: str,
    kind: Kind | None = None,
    name: str = "",
    causes: Sequence[Cause] = (),
    **more: Any,
) -> Refused:
    """Return a refusal.

    Args:
        more: further fields of its details.
    """
    details: dict[str, Any] = dict(more)
    if kind is not None:
        details |= {"name": name, "group": kind.group, "kind": kind.kind if code == 422 else kind.plural}
    if causes:
        details["causes"] = [each._asdict() for each in causes]
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return Refused(code, {**status, "reason": reason, "details": details, "code": code})


def not_found(kind: Kind, name: str) -> Refused:
    """Return the refusal for an absent object."""
    return of(404, "NotFound", f'{kind.named} "{name}" not found', kind, name)


def conflict(kind: Kind, name: str, text: str = _CHANGED) -> Refused:
    """Return the refusal for an object that is not as the request wants it."""
    return of(409, "Conflict", f'Operation cannot be fulfilled on {kind.named} "{name}": {text}', kind, name)


def other_uid(kind: Kind, name: str, wanted: str, found: str) -> Refused:
    """Return the refusal for an object of another uid."""
    return conflict(kind, name, f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}")


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> Refused:
    """Return the refusal for an invalid object."""
    texts = [f"{each.field}: {each.message}" for each in causes]
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    text = f'{kind.kind}{"." + kind.group if kind.group else ""} "{name}" is invalid: {said}'
    return of(422, "Invalid", text, kind, name, causes)


def expired(text: str = "The resourceVersion for the provided list is too old.", token: str = "") -> Refused:
    """Return the refusal for a revision whose history is gone."""
    found = of(410, "Expired", text)
    found.status["metadata"] = {"continue": token} if token else {}
    return found


def too_large(wanted: int, here: int) -> Refused:
    """Return the refusal for a revision that the server has not reached."""
    text = f"Timeout: Too large resource version: {wanted}, current: {here}"
    causes = [Cause("ResourceVersionTooLarge", "Too large resource version", "")]
    return of(504, "Timeout", text, causes=causes, retryAfterSeconds=1)
