"""Payloads to bytes and back."""

from __future__ import annotations

import copy
from typing import TypeVar

import betterproto2

M = TypeVar("M", bound=betterproto2.Message)


def encode(message: betterproto2.Message) -> bytes:
    return bytes(message)


def decode(cls: type[M], data: bytes) -> M:
    return cls.parse(data)


def copy_message(message: M) -> M:
    return copy.deepcopy(message)
