"""Registers local processes in the catalog, and writes their health."""
