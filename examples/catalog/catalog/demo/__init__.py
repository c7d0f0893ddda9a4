"""A catalog with three real services, one of which is killed: ``make -C examples/catalog run``.

service    a small HTTP server, one process of which is a workload
processes  processes that are started, killed and started again
fleet      the server, the registrar, the DNS server and the services
lookup     what a DNS server answers: by dig, or without it
"""
