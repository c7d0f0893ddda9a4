"""A question to an authorizer, whose failure is the service's fault and not the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from grpclib import GRPCError

from headway.errors import PayloadError
from headway.rpc import HandlerFault

Answer = TypeVar("Answer")

AUTHORIZER_FAILED = "the authorizer failed"


def ask(question: Callable[..., Answer], *about: object, mark: str = "") -> Answer:
    """Return the answer. Raises HandlerFault, whose message begins with ``mark``, when the authorizer raises.

    A PayloadError goes through: it says that a payload that the authorizer looked at does not decode.
    """
    try:
        return question(*about)
    except (GRPCError, PayloadError):
        raise
    except Exception as error:
        # Its text may say what only the program and its operator should know.
        raise HandlerFault(mark + AUTHORIZER_FAILED, error) from error
