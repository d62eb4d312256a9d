"""Copies one topic to another exactly once, for ever, with librdkafka; prints the last offset of each commit.

In each step it reads a few records, writes them and commits how far it has read: one transaction.
"""

import sys

import confluent_kafka

address, source, target, protocol = sys.argv[1:]
common = {"bootstrap.servers": address, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
consumer = confluent_kafka.Consumer(
    {
        **common,
        "group.id": "transform",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "group.protocol": protocol,
        **({"session.timeout.ms": 1500, "heartbeat.interval.ms": 100} if protocol == "classic" else {}),
    }
)
producer = confluent_kafka.Producer({**common, "transactional.id": "transform"})
producer.init_transactions(30)
consumer.subscribe([source])
while True:
    messages = [message for message in consumer.consume(10, 0.1) if message.error() is None]
    if not messages:
        continue
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), partition=0)
    position = confluent_kafka.TopicPartition(source, 0, messages[-1].offset() + 1)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    print(messages[-1].offset(), flush=True)
