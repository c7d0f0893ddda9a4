"""The routing of a service, computed from routes, services and policies: plain functions without an engine.

binding    the ports that each route has
targets    the ports of services that traffic goes to
rules      the rules of each kind of route, and their order
compute    the computed routes of a service
accepting  the conditions of routes and policies
"""
