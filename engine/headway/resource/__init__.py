"""The nouns: resources, their types and their payloads."""
