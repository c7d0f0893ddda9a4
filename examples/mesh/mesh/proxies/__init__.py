"""The template of a workload's proxy, computed from resources: plain functions without an engine.

names        the names of identities, servers and clusters
permissions  who may send what to a port
inbound      the listener for other proxies, and the clusters of the workload's own ports
matching     the conditions and the treatment of requests
outbound     the listeners of destinations, their routes and clusters
template     the whole template
gaps         what is missing in a template, and why
"""
