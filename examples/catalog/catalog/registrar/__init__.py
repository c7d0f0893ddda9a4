"""Registers local processes in the catalog, and writes their health.

marks        the metadata that a registrar writes, and the controller `registrars` reads
definitions  the file of workloads and checks
checks       one HTTP request, TCP connection or command, and its result
watching     a check again and again
publishing   the resources of one workload, from the results of its checks
agent        everything that a registrar runs

``python -m catalog.registrar FILE`` starts one.
"""
