"""A DNS server that answers from the catalog.

names      what a name of the domain stands for
instances  the addresses, ports and weights of what is healthy in a resource
records    the answers that instances make
answers    the bytes of an answer, in an order that follows the weights
zone       the answer to a question, from the cache
packets    from the bytes of a query to the bytes of its answer
freshness  whether the cache is good enough to answer from
server     UDP and TCP

``python -m catalog.dns`` starts it.
"""

from catalog.dns.freshness import Source as Source
from catalog.dns.packets import Responder as Responder
from catalog.dns.server import DNSServer as DNSServer
from catalog.dns.zone import Zone as Zone
