"""Upkeep of whole stores: record and compare schemas, copy, verify, check, back up and restore.

`headway.storage` has the public names. This package imports nothing, because most programs need only `_schemas.py`.
"""
