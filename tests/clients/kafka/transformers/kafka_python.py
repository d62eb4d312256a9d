"""Copies one topic to another exactly once, for ever, with kafka-python; prints the last offset of each commit.

In each step it reads a few records, writes them and commits how far it has read: one transaction.
"""

import sys

from kafka.structs import OffsetAndMetadata

import kafka

address, source, target = sys.argv[1:4]
producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id="transform")
producer.init_transactions()
consumer = kafka.KafkaConsumer(
    source,
    bootstrap_servers=address,
    group_id="transform",
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    isolation_level="read_committed",
    session_timeout_ms=1500,
    heartbeat_interval_ms=100,
    max_poll_records=10,
)
while True:
    for partition, messages in consumer.poll(100).items():
        producer.begin_transaction()
        for message in messages:
            producer.send(target, value=message.value, partition=0)
        last = messages[-1].offset
        producer.send_offsets_to_transaction(
            {partition: OffsetAndMetadata(last + 1, "", -1)}, consumer.group_metadata()
        )
        producer.commit_transaction()
        print(last, flush=True)
