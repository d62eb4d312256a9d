"""The brokers and their addresses, as clients are told them."""

from __future__ import annotations

from pathlib import Path

from flymq.broker.service.cluster import BrokerInfo, Cluster
from flymq.cluster.brokers import Admission, Listener, Registration, admission_key, encode, registration_key
from flymq.cluster.members import Members
from flymq.host.simulated_disk import SimulatedDisk
from flymq.metadata.store import KeyValue

INSIDE = ("10.0.0.1", 9092)
OUTSIDE = ("10.0.0.1", 9094)


def put(members: Members, key: str, value: bytes) -> None:
    members.apply(key, KeyValue(key, value, 1, 1))


def members_of(*listeners: list[Listener]) -> Members:
    """Return live brokers from 1 on, each with its listeners."""
    members = Members()
    for broker_id, each in enumerate(listeners, start=1):
        put(members, registration_key(broker_id), encode(Registration(each, "dir", rack=f"rack-{broker_id}")))
        put(members, admission_key(broker_id), encode(Admission(1)))
    return members


def cluster_of(members: Members, **fields: object) -> Cluster:
    return Cluster("c", 1, Path("/data"), SimulatedDisk(), members, **fields)  # type: ignore[arg-type]


def addresses(cluster: Cluster, dialled: tuple[str, int]) -> list[tuple[str, int]]:
    return [(broker.host, broker.port) for broker in cluster.brokers(dialled)]


def test_a_client_is_told_the_addresses_of_the_listener_it_came_in_by() -> None:
    members = members_of(
        [Listener("b1", 9092), Listener("b1.example", 19094, "outside")],
        [Listener("b2", 9092), Listener("b2.example", 29094, "outside")],
    )
    cluster = cluster_of(members, additional_listeners={9094: Listener("b1.example", 19094, "outside")})
    assert addresses(cluster, INSIDE) == [("b1", 9092), ("b2", 9092)]
    assert addresses(cluster, OUTSIDE) == [("b1.example", 19094), ("b2.example", 29094)]
    assert cluster.this_broker(OUTSIDE) == BrokerInfo(1, "b1.example", 19094, "rack-1")


def test_of_a_broker_without_that_listener_the_address_between_brokers_is_told() -> None:
    members = members_of([Listener("b1", 9092), Listener("b1.example", 19094, "outside")], [Listener("b2", 9092)])
    cluster = cluster_of(members, additional_listeners={9094: Listener("b1.example", 19094, "outside")})
    assert addresses(cluster, OUTSIDE) == [("b1.example", 19094), ("b2", 9092)]


def test_a_single_broker_is_told_as_dialled_or_as_advertised() -> None:
    assert addresses(cluster_of(Members()), INSIDE) == [INSIDE]
    assert addresses(cluster_of(Members(), advertised=("b1.example", None)), INSIDE) == [("b1.example", 9092)]
    outside = {9094: Listener("public.example", 80, "outside")}
    assert addresses(cluster_of(Members(), additional_listeners=outside), OUTSIDE) == [("public.example", 80)]


def test_clients_are_sent_to_live_brokers_unless_there_is_none_yet() -> None:
    members = members_of([Listener("b1", 9092)], [Listener("b2", 9092)])
    put(members, admission_key(2), encode(Admission(1, is_fenced=True)))
    cluster = cluster_of(members)
    assert [broker.broker_id for broker in cluster.usable_brokers(INSIDE)] == [1]
    assert (cluster.is_live(1), cluster.is_live(2), cluster.is_live(3)) == (True, False, False)
    put(members, admission_key(1), encode(Admission(1, is_fenced=True)))
    assert [broker.broker_id for broker in cluster.usable_brokers(INSIDE)] == [1, 2]
