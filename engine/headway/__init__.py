"""Headway: a controller engine on Trio."""
