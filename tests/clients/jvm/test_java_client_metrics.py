"""Java's client pushes its metrics, and the broker shows them to Prometheus (KIP-714)."""

import itertools
import re
import subprocess

from tests.clients.kafka.test_kafka_client_metrics import check_types, wait_for

from flymq import FlyMQClient
from flymq.testing import running_broker


def test_the_java_client_subscribes_and_pushes_metrics(kafka4, topic):
    with running_broker() as broker, FlyMQClient(broker.address) as client:
        client.create_topic(topic, partitions=1)
        with kafka4.start("ClientMetrics", broker.address, topic) as program:
            check_metrics(broker.address, topic, program)


def check_metrics(address: str, topic: str, program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    assert program.stdout is not None
    told = list(itertools.takewhile(lambda line: line != "pushing\n", program.stdout))
    assert [line.partition("=")[0] for line in told] == ["interval.ms", "match", "metrics"]
    who = f'client_id="java-{topic}"'
    text = wait_for(
        address,
        rf"kafka_client_producer_\w*record_send_total\{{{who}\S* 1",
        rf"kafka_client_consumer_fetch_manager_\w*lag\w*\{{{who}\S*topic=\"{topic}\"",
        rf"kafka_client_consumer_fetch_manager_\w+\{{\S*group_id=\"readers-of-{topic}\"",
    )
    check_types(text)
    assert not re.search(rf"kafka_client_consumer_coordinator\w*\{{{who}", text), "nobody subscribes to it"
    program.stdin.write("\n")
    program.stdin.flush()
    instances = [line.strip() for line in program.stdout]
    assert len(instances) == 2
    assert program.wait() == 0
