"""What tasks of Spark write to and read from a cluster, over the kill of a leader. No Spark needed."""

from __future__ import annotations

import pytest
from tests.cluster.brokers import Brokers

from flymq import FlyMQClient
from flymq.model.delivery import Isolation
from flymq.record.reading import parse_rows

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from flymq.spark.broker_connection import connect  # noqa: E402
from flymq.spark.options import parse_read_options, parse_write_options  # noqa: E402
from flymq.spark.sink.producing import AttemptProducer  # noqa: E402
from flymq.spark.source.fetching import RangeFetch  # noqa: E402
from flymq.spark.source.planning import OffsetRange  # noqa: E402
from flymq.spark.source.positions import Positions  # noqa: E402

ROWS = 400


def test_a_task_writes_and_another_reads_each_row_once_while_leaders_are_killed(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses) as client:
        client.create_topic("orders", partitions=1, replication_factor=3)
    options = parse_write_options(
        {"bootstrapServers": cluster.addresses, "topic": "orders", "batchBytes": "1000", "acks": "all"}
    )
    connection = connect(options.connection(), expects_broker=True)
    producer = AttemptProducer(connection, options, transactional_id="", first_turn=0)
    values = [f"{number:05}" for number in range(ROWS)]
    producer.write(pa.RecordBatch.from_pydict({"value": values[: ROWS // 2]}))
    first_leader = cluster.leader_of("orders")
    cluster[first_leader].kill()
    producer.write(pa.RecordBatch.from_pydict({"value": values[ROWS // 2 :]}))
    producer.finish()

    positions = Positions(
        connection, parse_read_options({"bootstrapServers": cluster.addresses, "subscribe": "orders"})
    )
    [(name, end)] = positions.latest(positions.partitions()).items()
    assert end == ROWS
    fetch = RangeFetch(connection, isolation=Isolation.READ_COMMITTED, fetch_bytes=1000, fail_on_data_loss=True)
    found: list[str] = []
    for number, run in enumerate(fetch.runs(OffsetRange(*name, 0, end))):
        if number == 1:
            cluster[first_leader].start()
            cluster.until_in_sync("orders")
            cluster[cluster.leader_of("orders")].kill()
        found += [bytes(row[3] or b"").decode() for row in parse_rows(run.batches, start_offset=run.start_offset)]
    assert found == values
