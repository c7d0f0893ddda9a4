"""The validation and the defaults of each type."""
