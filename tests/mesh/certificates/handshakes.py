"""TLS handshakes between two leaves, as proxies make them."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mesh.certificates import Leaf


def context(purpose: int, leaf: Leaf, roots: Sequence[str]) -> ssl.SSLContext:
    """Return the context of one end, which demands a certificate of its peer."""
    made = ssl.SSLContext(purpose)
    made.check_hostname = False  # proxies compare SPIFFE ids
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder, "leaf.pem")
        chain.write_text(leaf.chain + leaf.key)
        made.load_cert_chain(chain)
    made.load_verify_locations(cadata="".join(roots))
    return made


def shake(server: Leaf, server_roots: Sequence[str], client: Leaf, client_roots: Sequence[str]) -> tuple[str, str]:
    """Make a handshake in memory. Return the SPIFFE ids that the client and the server see. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        context(ssl.PROTOCOL_TLS_CLIENT, client, client_roots).wrap_bio(to_client, to_server),
        context(ssl.PROTOCOL_TLS_SERVER, server, server_roots).wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting
    seen = []
    for end in ends:
        found = end.getpeercert()
        assert found is not None
        names = found["subjectAltName"]
        assert [each[0] for each in names] == ["URI"]
        seen.append(str(names[0][1]))
    return seen[0], seen[1]
