"""A mesh with real Envoys under load, to which everything happens: ``make -C examples/mesh run``.

envoy      a stock Envoy as the proxy of one workload
members    a workload with its service, its proxy, and the agent that reports its health
rights     the access file
site       the control plane, the members and what is declared
load       the client that calls all the time, and what may come of a call
scenario   the steps, each of which waits for its effect on the calls
"""
