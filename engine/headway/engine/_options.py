"""The records of options that `open_engine`, `open_workers` and `open_cache` take: `Network` and `Timing`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, TypeVar

from headway.base import check_keywords, repr_text
from headway.engine._arguments import check_flag, check_tls
from headway.errors import DeclarationError, InvalidArgument
from headway.rpc import Limits
from headway.run import LEASE_TTL, STALL_LIMIT

if TYPE_CHECKING:
    from ssl import SSLContext

    from headway.access import Authorizer


@check_keywords
@dataclass(frozen=True)
class Network:
    """An engine's addresses and its clients' rights: ``network=headway.Network(["127.0.0.1:9000"], insecure=True)``

    Attributes:
        listen: the addresses at which to serve gRPC, also under Consul's service name: "127.0.0.1:9000", "[::1]:0",
            "unix:/run/headway.sock".
        http: the address at which to serve resources as JSON over HTTP, and the live page: "127.0.0.1:8080". Without
            ``access``, it must be a loopback address. It needs ``pip install 'headway[http]'``.
        http_writes: let the live page also change things, within the rights of its visitor.
            The JSON API always writes.
        tls: the TLS context for TCP addresses, from `headway.rpc.server_tls`. A certificate that is renewed on disk is
            used without a restart.
        access: decides which network client may do what. Code within the process may do everything.
        insecure: let every client that can connect do everything. Use it instead of ``access``; never the default.
        limits: the limits for network clients: the number of connections in all and from one host, the size of a
            message, and more.
        share_ports: let engines in other processes listen on the same TCP ports (SO_REUSEPORT), as `headway serve
            --processes` does. Linux spreads new connections over them. They need one store in etcd or PostgreSQL.

    Raises DeclarationError for an invalid option, and if ``listen`` or ``http`` is given without ``access`` or
    ``insecure``.
    """

    listen: Sequence[str] = ()
    _: KW_ONLY
    http: str | None = None
    http_writes: bool = False
    tls: SSLContext | None = None
    access: Authorizer | None = None
    insecure: bool = False
    limits: Limits | None = None
    share_ports: bool = False

    @property
    def serves(self) -> bool:
        """True if there is an address."""
        return bool(self.listen) or self.http is not None

    def __post_init__(self) -> None:
        for flag in ("http_writes", "insecure", "share_ports"):
            check_flag(flag, getattr(self, flag))
        check_tls(self.tls)
        self._check_access(self.access)
        self._check_listen(self.listen)
        self._check_http(self.http)
        limits: object = self.limits
        if limits is not None and not isinstance(limits, Limits):
            raise DeclarationError(
                f"limits={limits!r} must be limits, such as limits=headway.rpc.Limits(connections=500)"
            )

    def _check_access(self, given: object) -> None:
        if given is None:
            return
        # Imported here, because most programs do not need it.
        from headway.access import Authorizer

        if not isinstance(given, Authorizer):
            raise DeclarationError(
                f"access={repr_text(given)} must be an authorizer, such as "
                "access=headway.access.Authorizer(headway.access.load_access('access.yaml'))"
            )

    def _check_listen(self, given: object) -> None:
        if isinstance(given, str) or not (isinstance(given, Sequence) and all(isinstance(each, str) for each in given)):
            raise DeclarationError(f"listen={given!r} must be a list of addresses, such as listen=['127.0.0.1:9000']")
        if given:
            where = f"listen={list(given)!r}"
            self._check_rights(where, "every client that can connect")
            if self.access is not None and self.insecure:
                raise DeclarationError(
                    f"{where}: give access=, which decides who may do what, or insecure=True, and not both"
                )

    def _check_http(self, given: object) -> None:
        if given is None:
            return
        # Imported here, because most programs do not need them.
        from headway.http import check_http_address
        from headway.rpc import ServerTls

        if not isinstance(given, str):
            raise DeclarationError(f"http={repr_text(given)} must be an address, such as http='127.0.0.1:8080'")
        self._check_rights(f"http={given!r}", "every program on this machine")
        try:
            check_http_address(given, controlled=self.access is not None)
        except InvalidArgument as error:
            raise DeclarationError(f"http={given!r}: {error}") from None
        if self.tls is not None and not isinstance(self.tls, ServerTls):
            raise DeclarationError(
                f"tls={self.tls!r} must come from headway.rpc.server_tls(...) for an engine with http="
            )

    def _check_rights(self, where: str, everyone: str) -> None:
        if self.access is None and not self.insecure:
            raise DeclarationError(
                f"{where} needs either access=headway.access.Authorizer(...), which decides who may do what, or "
                f"insecure=True, which lets {everyone} do everything"
            )


@check_keywords
@dataclass(frozen=True, kw_only=True)
class Timing:
    """The durations of an engine or of workers, in seconds: ``timing=headway.Timing(lease_ttl=30)``

    Attributes:
        lag_limit: the time that a type's stream may lag behind the known revision before it is replaced. `math.inf` for
            never.
        stall_limit: the time within which a type that is being primed must make some progress, however small.
            Otherwise the controller's run ends with PrimingStalled, which names the type, and is restarted.
        lease_ttl: the time, from 1 to 3,600, after which another process (`open_workers`, or an engine on the same
            store) takes over a controller that this one led when it died.
        shutdown_bound: the time within which every task should end after the block has ended. A task that is still
            running then is reported with its stack, again each time this period passes. The block still waits for it.
        hard_exit: the time after which the process exits with status 70 if tasks are still running, since nothing else
            can end a busy loop. Default: never.
        block_limit: the time for which a task may block the event loop, in a blocking call or a long computation,
            before it is reported with its stack (`LoopBlocked`). None disables this check.

    Raises DeclarationError for an invalid duration.
    """

    lag_limit: float = 30.0
    stall_limit: float = STALL_LIMIT
    lease_ttl: float = LEASE_TTL
    shutdown_bound: float = 10.0
    hard_exit: float | None = None
    block_limit: float | None = 1.0

    def __post_init__(self) -> None:
        for name in ("stall_limit", "lease_ttl", "shutdown_bound"):
            _check_seconds(name, getattr(self, name))
        if not 1 <= self.lease_ttl <= 3600:
            raise DeclarationError(f"lease_ttl={self.lease_ttl!r} must be from 1 to 3600 seconds, such as lease_ttl=15")
        if self.lag_limit != math.inf:
            _check_seconds("lag_limit", self.lag_limit)
        for name in ("hard_exit", "block_limit"):
            if getattr(self, name) is not None:
                _check_seconds(name, getattr(self, name))


def _check_seconds(name: str, given: object) -> None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not (0 < given < math.inf):
        raise DeclarationError(f"{name}={given!r} must be a number of seconds above 0, such as {name}=10")


Record = TypeVar("Record")


def given_or_default(name: str, given: Record | None, kind: type[Record], example: str) -> Record:
    """Return a record of options, with its defaults if none was given. Raises DeclarationError for another object."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise DeclarationError(f"{name}={repr_text(given)} must be a {kind.__name__}, such as {name}=headway.{example}")
    return given
