"""A catalog with three real services that are killed in turn: ``make -C examples/catalog run``.

service    a small HTTP server; each process is a workload
processes  processes that are started, killed and started again
fleet      the server, the registrar, the DNS server and the services
lookup     asking the DNS server, with or without dig
"""
