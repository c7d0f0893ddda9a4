"""Calls to an authorizer. A failing authorizer is the fault of the service and not of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from grpclib import GRPCError

from headway.errors import PayloadError
from headway.rpc import HandlerFault

Answer = TypeVar("Answer")

AUTHORIZER_FAILED = "the authorizer failed"


def ask(question: Callable[..., Answer], *about: object, mark: str = "") -> Answer:
    """Return the authorizer's answer. Raises HandlerFault, with ``mark`` before its message, if the authorizer raises.

    A PayloadError passes through: it means that a payload that the authorizer looked at does not decode.
    """
    try:
        return question(*about)
    except (GRPCError, PayloadError):
        raise
    except Exception as error:
        # The error's text may contain what only the program and its operator should know.
        raise HandlerFault(mark + AUTHORIZER_FAILED, error) from error
