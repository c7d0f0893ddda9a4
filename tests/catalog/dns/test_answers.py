"""DNS answers from the resources of a catalog."""

from __future__ import annotations

from collections import Counter

import dns.flags
import dns.rdatatype
import dns.reversename

import headway
from catalog.types import SERVICE, SERVICE_ENDPOINTS
from tests.catalog.dns.dns_kit import (
    CRITICAL,
    PASSING,
    WARNING,
    address,
    endpoint,
    open_catalog,
    outcome,
    texts,
    weights,
)


async def test_service_is_answered_by_the_addresses_of_its_healthy_endpoints() -> None:
    async with open_catalog() as catalog:
        await catalog.endpoints(
            "web",
            endpoint("10.0.0.1"),
            endpoint("10.0.0.2", health=WARNING),
            endpoint("10.0.0.3", health=CRITICAL),
            endpoint("10.0.0.4", health=WARNING, dns=weights(5, 0)),
            endpoint("fd00::1", "10.0.0.5"),
            endpoint("unix:///run/web.sock"),
        )
        assert texts(catalog.ask("web.service.consul")) == ["10.0.0.1", "10.0.0.2", "10.0.0.5"]
        assert texts(catalog.ask("web.service.consul", "AAAA")) == ["fd00::1"]
        assert texts(catalog.ask("WEB.Service.CONSUL.")) == ["10.0.0.1", "10.0.0.2", "10.0.0.5"]
        assert texts(catalog.ask("web.service.default.ns.default.ap.consul")) == ["10.0.0.1", "10.0.0.2", "10.0.0.5"]
        answer = catalog.ask("web.service.consul")
        assert answer.flags & dns.flags.AA
        assert not answer.flags & dns.flags.TC


async def test_srv_points_to_names_of_addresses_that_are_answered() -> None:
    async with open_catalog() as catalog:
        await catalog.endpoints(
            "web",
            endpoint("10.0.0.1", numbers={"http": 80, "admin": 81}, dns=weights(7)),
            endpoint(address("10.0.0.2", "http"), numbers={"http": 8080, "admin": 81}),
            endpoint("10.0.0.3", health=CRITICAL),
            endpoint("away.example.com", numbers={"http": 443}),
        )
        first, second = "0a000001.addr.consul.", "0a000002.addr.consul."
        http = [f"1 1 8080 {second}", "1 1 443 away.example.com.", f"1 7 80 {first}"]
        assert texts(catalog.ask("web.service.consul", "SRV")) == sorted([*http, f"1 7 81 {first}"])
        assert texts(catalog.ask("http.web.service.consul", "SRV")) == sorted(http)
        assert texts(catalog.ask("_http._tcp.web.service.consul", "SRV")) == sorted(http)
        assert texts(catalog.ask("admin.web.service.consul")) == ["10.0.0.1"]
        more = catalog.ask("admin.web.service.consul", "SRV").additional
        assert [(str(each.name), str(each[0])) for each in more] == [(first, "10.0.0.1")]
        assert texts(catalog.ask(first)) == ["10.0.0.1"]
        assert outcome(catalog.ask(first, "AAAA")) == "NODATA"


async def test_nxdomain_is_told_from_nodata() -> None:
    async with open_catalog() as catalog:
        await catalog.endpoints("ill", endpoint("10.0.0.3", health=CRITICAL))
        await catalog.endpoints("four", endpoint("10.0.0.1"))
        bare = await catalog.client.apply(SERVICE.new("bare"))
        await catalog.seen(bare)
        for name in (
            *("ill.service.consul", "bare.service.consul", "http.ill.service.consul", "_tcp.four.service.consul"),
            *(
                "consul",
                "service.consul",
                "workload.consul",
                "addr.consul",
                "team.ns.consul",
                "ap.consul",
                "x.ap.consul",
            ),
            *("default.ns.default.ap.consul", "service.default.ns.consul", "127.in-addr.arpa", "ip6.arpa"),
        ):
            assert outcome(catalog.ask(name)) == "NODATA", name
        assert outcome(catalog.ask("four.service.consul", "AAAA")) == "NODATA"
        for name in (
            *("no.service.consul", "no.workload.consul", "admin.four.service.consul", "a.b.four.service.consul"),
            *("four.nothing.consul", "four.service.team.ns.consul", "four.service.other.ap.consul", "zz.addr.consul"),
            *("-.service.consul", "_x.service.consul", "_.workload.consul", "a_b.service.consul", "_a.ap.consul"),
            *("_http._tcp.four.service.x_.ns.consul", "four.service._a.ap.consul", "_http._tcp._dmarc.service.consul"),
            *(
                "-1.0.0.10.in-addr.arpa",
                "+1.0.0.10.in-addr.arpa",
                "01.0.0.10.in-addr.arpa",
                "-1.ip6.arpa",
                "1f.ip6.arpa",
            ),
            *("-1.in-addr.arpa", "1_0.0.0.10.in-addr.arpa", f"-1.{'0.' * 31}ip6.arpa", f"g.{'0.' * 31}ip6.arpa"),
            *("256.0.0.10.in-addr.arpa", "1.0.0.0.10.in-addr.arpa", f"1.{'0.' * 32}ip6.arpa"),
            *("300.0.0.10.in-addr.arpa", "1.0.0.10.in-addr.arpa", "a.1.0.0.10.in-addr.arpa"),
        ):
            answer = catalog.ask(name)
            assert outcome(answer) == "NXDOMAIN", name
            assert [each.rdtype.name for each in answer.authority] == ["SOA"], name
        assert outcome(catalog.ask("example.com")) == "REFUSED"
        assert outcome(catalog.ask("web.service.notconsul")) == "REFUSED"
        assert outcome(catalog.ask("four.service.consul", "AXFR")) == "REFUSED"


async def test_domain_has_a_name_server_with_an_address() -> None:
    """Resolvers follow NS from the apex, and the name in SOA. The reverse zones have the same one."""
    async with open_catalog() as catalog:
        for zone in ("consul", "in-addr.arpa", "ip6.arpa"):
            answer = catalog.ask(zone, "NS")
            assert texts(answer) == ["ns.consul."]
            assert [each.to_text() for each in answer.additional] == ["ns.consul. 0 IN A 127.0.0.1"]
            assert texts(catalog.ask(zone, "SOA"))[0].startswith("ns.consul. hostmaster.consul. ")
            assert {each.rdtype.name for each in catalog.ask(zone, "ANY").answer} == {"NS", "SOA"}
            assert outcome(catalog.ask(zone, "A")) == "NODATA"
        assert texts(catalog.ask("ns.consul")) == ["127.0.0.1"]
        for type in ("AAAA", "SRV"):
            assert outcome(catalog.ask("ns.consul", type)) == "NODATA"
        assert outcome(catalog.ask("team.ns.consul")) == "NODATA"


async def test_tenancy_is_part_of_the_name() -> None:
    async with open_catalog() as catalog:
        await catalog.client.apply(headway.PARTITION.new("east"))
        await catalog.client.apply(headway.NAMESPACE.new("team", partition="east"))
        await catalog.client.apply(headway.NAMESPACE.new("team"))
        await catalog.endpoints("web", endpoint("10.0.0.1"))
        await catalog.endpoints("web", endpoint("10.0.0.2"), namespace="team")
        await catalog.endpoints("web", endpoint("10.0.0.3"), partition="east", namespace="team")
        for tenancy, host in (("", 1), (".team.ns", 2), (".team.ns.east.ap", 3), (".default.ns", 1)):
            assert texts(catalog.ask(f"web.service{tenancy}.consul")) == [f"10.0.0.{host}"]
        assert outcome(catalog.ask("web.service.east.ap.consul")) == "NXDOMAIN"


async def test_workload_and_its_reverse_name_follow_its_health() -> None:
    async with open_catalog() as catalog:
        await catalog.select("web", "web-")
        one = await catalog.workload("web-1", "10.0.0.1", address("203.0.113.1", external=True))
        await catalog.workload("web-2", "fd00::2")
        await catalog.until("web-1.workload.consul", ["10.0.0.1"])
        await catalog.until("web.service.consul", ["10.0.0.1"])
        name = "web-1.workload.default.ns.default.ap.consul."
        assert texts(catalog.ask("1.0.0.10.in-addr.arpa", "PTR")) == [name]
        assert texts(catalog.ask("web-1.workload.consul", "SRV")) == ["1 1 80 0a000001.addr.consul."]
        reverse = str(dns.reversename.from_address("fd00::2"))
        await catalog.until(reverse, ["web-2.workload.default.ns.default.ap.consul."], "PTR")

        await catalog.check(one, CRITICAL)
        await catalog.until("web-1.workload.consul", [])
        await catalog.until("web.service.consul", [])
        assert outcome(catalog.ask("1.0.0.10.in-addr.arpa", "PTR")) == "NODATA"
        assert outcome(catalog.ask("web-1.workload.consul")) == "NODATA"
        await catalog.check(one, PASSING)
        await catalog.until("web.service.consul", ["10.0.0.1"])
        await catalog.client.delete(one)
        await catalog.until("web.service.consul", [])
        assert outcome(catalog.ask("web-1.workload.consul")) == "NXDOMAIN"


async def test_endpoints_of_an_earlier_service_are_not_answered() -> None:
    """A service that was created again does not have the endpoints of the first one, even before they are gone."""
    async with open_catalog() as catalog:
        service = await catalog.endpoints("web", endpoint("10.0.0.1"))
        endpoints = await catalog.client.read(SERVICE_ENDPOINTS, "web")
        # A finalizer keeps them.
        endpoints.finalizers = endpoints.finalizers | {"test/keep"}
        await catalog.client.write(endpoints)
        await catalog.client.delete(service)
        await catalog.seen(await catalog.client.apply(SERVICE.new("web", service.data)))
        assert catalog.cache.get(SERVICE_ENDPOINTS, "web") is not None
        assert outcome(catalog.ask("web.service.consul")) == "NODATA"


async def test_address_that_is_a_name_is_answered_as_an_alias() -> None:
    async with open_catalog() as catalog:
        await catalog.endpoints("away", endpoint("one.example.com"), endpoint("two.example.com"))
        seen = Counter(tuple(texts(catalog.ask("away.service.consul"))) for _ in range(60))
        assert set(seen) == {("one.example.com.",), ("two.example.com.",)}
        for type in ("AAAA", "CNAME", "ANY", "HTTPS", "MX"):
            assert catalog.ask("away.service.consul", type).answer[0].rdtype == dns.rdatatype.CNAME, type
        assert catalog.ask("away.service.consul", "SRV").answer[0].rdtype == dns.rdatatype.SRV
        await catalog.endpoints("mixed", endpoint("one.example.com"), endpoint("10.0.0.1"))
        assert texts(catalog.ask("mixed.service.consul")) == ["10.0.0.1"]


async def test_large_answer_is_cut_with_tc_over_udp_and_whole_over_tcp() -> None:
    async with open_catalog() as catalog:
        hosts = [f"10.0.{number // 250}.{number % 250}" for number in range(1_500)]
        await catalog.endpoints("many", *map(endpoint, hosts))
        await catalog.endpoints("some", *map(endpoint, hosts[:40]))
        for name, edns, least in (("some", None, 25), ("some", 600, 30), ("many", 4_096, 70), ("many", None, 25)):
            answer = catalog.ask(f"{name}.service.consul", edns=edns)
            assert answer.flags & dns.flags.TC
            assert least <= len(texts(answer)) < 80
            assert set(texts(answer)) <= set(hosts)
            assert len(answer.to_wire()) <= (edns or 512)
        some = catalog.ask("some.service.consul", edns=1_232)
        assert not some.flags & dns.flags.TC
        assert len(texts(some)) == 40
        whole = catalog.ask("many.service.consul", tcp=True)
        assert not whole.flags & dns.flags.TC
        assert len(set(texts(whole))) == 1_000
