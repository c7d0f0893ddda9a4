"""Payload classes."""

import betterproto2


def type_name(cls: type[betterproto2.Message]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
