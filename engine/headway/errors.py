"""Every error that Headway raises on purpose."""


class HeadwayError(Exception):
    """What all errors of Headway have in common."""


class DeclarationError(HeadwayError, TypeError):
    """A declaration in a program is not one that can be kept; the text says where, and what would be."""


class PayloadError(HeadwayError, ValueError):
    """Bytes that are not the message they should be, or a message that can't be put into bytes."""
