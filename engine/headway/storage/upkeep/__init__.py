"""Upkeep of whole stores: copy, verify, check, back up and restore.

`headway.storage` has the public names. This package imports nothing, because most programs need none of it.
"""
