"""A fleet of real operating-system processes, kept as declared."""
