"""Frameworks on top of Kafka's clients, used as their own tutorials use them, with nothing but the address changed."""

import asyncio
import json
import subprocess
import sys
import warnings
from importlib.util import find_spec

import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.partitioner import DefaultPartitioner
from faststream import FastStream
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker as AiokafkaBroker
from taskiq import InMemoryBroker
from taskiq.api import run_receiver_task
from tests.clients.kafka.peers import KAFKA_PEERS, WAIT_S, Row

with warnings.catch_warnings():  # it wraps kafka-python, which reads its schemas in an old-fashioned way
    warnings.simplefilter("ignore", DeprecationWarning)
    from taskiq_aio_kafka import AioKafkaBroker

FASTSTREAM = {"faststream (aiokafka)": AiokafkaBroker, "faststream (confluent-kafka)": ConfluentBroker}


@pytest.mark.shows("consume, transform, produce", by="framework")
@pytest.mark.parametrize("framework", FASTSTREAM)
async def test_faststream_handles_each_message_and_publishes_the_answer(broker, topic, framework):
    streams = FASTSTREAM[framework](broker.address)
    done: asyncio.Queue[dict[str, int]] = asyncio.Queue()

    @streams.subscriber(topic, group_id=topic, auto_offset_reset="earliest")
    @streams.publisher(f"{topic}-doubled")
    async def double(order: dict[str, int]) -> dict[str, int]:
        return {"amount": order["amount"] * 2}

    @streams.subscriber(f"{topic}-doubled", group_id=f"{topic}-doubled", auto_offset_reset="earliest")
    async def note(order: dict[str, int]) -> None:
        await done.put(order)

    application = FastStream(streams)
    await application.start()
    try:
        for amount in range(5):
            await streams.publish({"amount": amount}, topic, key=b"%d" % amount)
        found = [await asyncio.wait_for(done.get(), WAIT_S) for _ in range(5)]
        assert sorted(each["amount"] for each in found) == [0, 2, 4, 6, 8]
    finally:
        await application.stop()


QUIX = """
import sys
from quixstreams import Application
address, topic, state_dir = sys.argv[1:]
application = Application(
    broker_address=address, consumer_group=topic, auto_offset_reset="earliest", state_dir=state_dir,
    processing_guarantee="exactly-once", commit_interval=0.2, loglevel="ERROR",
)
frame = application.dataframe(application.topic(topic, value_deserializer="json"))

def add(value, state):
    total = state.get("total", 0) + value["amount"]
    state.set("total", total)
    return {"total": total}

frame = frame.apply(add, stateful=True)
frame.to_topic(application.topic(topic + "-totals", value_serializer="json"))
application.run(count=5, timeout=30)
"""


@pytest.mark.shows("consume, transform, produce", client="quixstreams")
def test_quixstreams_sums_up_in_a_state_that_outlives_its_process_and_its_files(broker, topic, tmp_path):
    """Its state is a compacted topic: the second process has nothing else to go on from."""
    if find_spec("authlib") is None:
        pytest.skip("quixstreams cannot be imported: `pip install authlib cachetools` completes it")
    for part in range(2):
        rows = [Row(b"key", json.dumps({"amount": number}).encode()) for number in range(5)]
        KAFKA_PEERS["librdkafka"].write(broker.address, topic, rows)
        state_dir = tmp_path / f"state-{part}"
        command = [sys.executable, "-W", "ignore", "-c", QUIX, broker.address, topic, str(state_dir)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    totals = KAFKA_PEERS["librdkafka"].read(broker.address, f"{topic}-totals", 10, committed=True)
    assert [json.loads(row.value or b"")["total"] for row in totals] == [0, 1, 3, 6, 10, 10, 11, 13, 16, 20]


@pytest.mark.shows("consume, transform, produce", client="taskiq")
@pytest.mark.filterwarnings("ignore:The `api_version` parameter:DeprecationWarning")
async def test_taskiq_runs_tasks_that_were_kicked_over_a_topic(broker, topic):
    results = InMemoryBroker().result_backend
    tasks = AioKafkaBroker(broker.address, kafka_topic=topic).with_result_backend(results)
    # It gives aiokafka the partitioner and the assignor of kafka-python, whose version 3 has them in another form.
    tasks.configure_producer(partitioner=DefaultPartitioner())
    tasks.configure_consumer(
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
    )
    tasks.is_worker_process = True

    @tasks.task
    async def add(one: int, two: int) -> int:
        return one + two

    await tasks.startup()
    worker = asyncio.create_task(run_receiver_task(tasks))
    try:
        kicked = [await add.kiq(number, number) for number in range(5)]
        found = [await each.wait_result(timeout=WAIT_S) for each in kicked]
        assert [each.return_value for each in found] == [0, 2, 4, 6, 8]
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await tasks.shutdown()
