"""The blocking client: one background loop, pools, threads, forks and programs that end early."""

import subprocess
import sys
import threading

import pytest

from flymq import FlyMQClient, FlyMQClientPool
from flymq.errors import ClientClosed, InvalidSetting, RequestTimedOut
from flymq.testing import TestBroker


def in_a_fresh_process(program: str, broker: TestBroker) -> None:
    """Run a program that looks at its threads: in this process other tests may have clients of their own."""
    looks = (
        "import sys, threading\n"
        "from flymq import FlyMQClient\n"
        "def loops(): return sum(thread.name == 'flymq client' for thread in threading.enumerate())\n"
    )
    subprocess.run([sys.executable, "-c", looks + program, broker.address], check=True, timeout=60)


def test_all_clients_share_one_thread_which_ends_with_the_last(broker: TestBroker):
    in_a_fresh_process(
        "clients = [FlyMQClient(sys.argv[1]) for _ in range(3)]\n"
        "assert loops() == 1\n"
        "for client in clients:\n"
        "    assert loops() == 1\n"
        "    client.close()\n"
        "assert loops() == 0\n",
        broker,
    )


def test_a_client_that_is_dropped_lets_the_thread_go(broker: TestBroker):
    in_a_fresh_process(
        "client = FlyMQClient(sys.argv[1])\n"
        "client.list_topics()\n"
        "assert loops() == 1\n"
        "del client\n"
        "assert loops() == 0\n",
        broker,
    )


def test_a_pool_lends_each_client_to_one_at_a_time(broker: TestBroker, topic: str):
    with FlyMQClientPool(broker.address, size=2) as pool:
        with pool.get_client() as first, pool.get_client() as second:
            assert first is not second
            with pytest.raises(RequestTimedOut, match="all 2 clients"), pool.get_client(timeout_s=0.01):
                pass
        with pool.get_client() as again:
            assert again in (first, second)
            assert again.produce(topic, b"v") == 0


def test_a_pool_serves_more_threads_than_it_has_clients(broker: TestBroker, topic: str):
    with FlyMQClientPool(broker.address, size=3) as pool:

        def work() -> None:
            for _ in range(10):
                with pool.get_client() as client:
                    client.produce(topic, b"v", key=b"k")

        threads = [threading.Thread(target=work) for _ in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pool.get_client() as client:
            assert sum(client.admin.latest_offsets(topic).values()) == 90


def test_a_closed_pool_lends_nothing_and_closes_what_comes_back(broker: TestBroker):
    pool = FlyMQClientPool(broker.address)
    with pool.get_client() as client:
        pool.close()
    with pytest.raises(ClientClosed):
        client.list_topics()
    with pytest.raises(ClientClosed), pool.get_client():
        pass


def test_a_pool_has_at_least_one_client():
    with pytest.raises(InvalidSetting, match="size"):
        FlyMQClientPool(size=0)


def test_a_blocking_call_in_a_callback_is_refused_instead_of_a_deadlock(client: FlyMQClient, topic: str):
    caught: list[BaseException] = []

    def callback(place, error) -> None:
        try:
            client.list_topics()
        except InvalidSetting as refusal:
            caught.append(refusal)

    with client.producer() as producer:
        producer.send(topic, b"v", on_delivery=callback)
    assert "deadlock" in str(caught[0])


def test_a_forked_process_starts_its_own_thread(broker: TestBroker, topic: str):
    program = f"""
import os
from flymq import FlyMQClient
from flymq.errors import ClientClosed
with FlyMQClient({broker.address!r}) as client:
    client.produce({topic!r}, b"parent")
    child = os.fork()
    if child == 0:
        try:
            client.produce({topic!r}, b"with the parent's client")
        except ClientClosed as refusal:
            assert "forked" in refusal.message or "closed" in refusal.message
        with FlyMQClient({broker.address!r}) as own:
            own.produce({topic!r}, b"child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(sum(client.admin.latest_offsets({topic!r}).values()))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("2", "")


def test_a_program_that_forgets_to_close_ends_quietly_and_loses_nothing(broker: TestBroker, topic: str):
    program = f"""
from flymq import FlyMQClient
client = FlyMQClient({broker.address!r})
client.produce({topic!r}, b"v")
consumer = client.consumer({topic!r})
print(consumer.poll(20_000)[0].value)
client.producer(linger_ms=60_000).send({topic!r}, b"at the last moment")
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("b'v'", "", 0)
    with FlyMQClient(broker.address) as client:
        assert sum(client.admin.latest_offsets(topic).values()) == 2


def test_metrics_count_what_happened(broker: TestBroker, topic: str):
    with FlyMQClient(broker.address) as client:
        client.produce_batch(topic, [b"v"] * 10)
        with client.consumer(topic) as consumer:
            count = 0
            while count < 10:
                count += len(consumer.poll())
        metrics = client.metrics()
    assert (metrics.connections, metrics.connects, metrics.errors) == (1, 1, 0)
    assert (metrics.records_sent, metrics.records_received) == (10, 10)
    assert 0 < metrics.request_latency_ms_p50 <= metrics.request_latency_ms_max
    assert metrics.bytes_sent > 0
    assert client.metrics().connections == 0
