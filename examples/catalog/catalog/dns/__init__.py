"""A DNS server that answers from the catalog."""
