"""Copies one topic to another exactly once, for ever, with aiokafka; prints the last offset of each commit.

In each step it reads a few records, writes them and commits how far it has read: one transaction.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def main(address: str, source: str, target: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="transform")
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=address,
        group_id="transform",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=1500,
        heartbeat_interval_ms=100,
    )
    async with producer, consumer:
        while True:
            found = await consumer.getmany(timeout_ms=100, max_records=10)
            for partition, messages in found.items():
                async with producer.transaction():
                    for message in messages:
                        await producer.send(target, message.value, partition=0)
                    last = messages[-1].offset
                    position = {TopicPartition(source, partition.partition): last + 1}
                    await producer.send_offsets_to_transaction(position, "transform")
                print(last, flush=True)


asyncio.run(main(*sys.argv[1:4]))
