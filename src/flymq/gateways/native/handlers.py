"""The table of handlers by opcode. Adding an operation is one small function and one line here."""

from __future__ import annotations

from flymq.gateways.native import groups, peer_transactions, peers, push, records, session, topics, transactions
from flymq.gateways.native.connection import Handler
from flymq.wire.native.opcodes import Opcode

HANDLERS: dict[int, Handler] = {
    Opcode.PRODUCE: records.produce,
    Opcode.CONSUME: records.consume,
    Opcode.CREATE_TOPIC: topics.create_topic,
    Opcode.DELETE_TOPIC: topics.delete_topic,
    Opcode.LIST_TOPICS: topics.list_topics,
    Opcode.FETCH: records.fetch,
    Opcode.PRODUCE_BATCH: records.produce_batch,
    Opcode.LIST_OFFSETS: records.list_offsets,
    Opcode.METADATA: topics.metadata,
    Opcode.DESCRIBE_TOPIC: topics.describe_topic,
    Opcode.ALTER_TOPIC: topics.alter_topic,
    Opcode.ADD_PARTITIONS: topics.add_partitions,
    Opcode.DELETE_RECORDS: records.delete_records,
    Opcode.DESCRIBE_CLUSTER: topics.describe_cluster,
    Opcode.PLACE_REPLICAS: topics.place_replicas,
    Opcode.SUBSCRIBE: groups.subscribe,
    Opcode.COMMIT: groups.commit,
    Opcode.HEARTBEAT: groups.heartbeat,
    Opcode.LEAVE: groups.leave,
    Opcode.SYNC: groups.sync,
    Opcode.FETCH_OFFSETS: groups.fetch_offsets,
    Opcode.LIST_GROUPS: groups.list_groups,
    Opcode.DESCRIBE_GROUP: groups.describe_group,
    Opcode.DELETE_GROUP: groups.delete_group,
    Opcode.RESET_OFFSETS: groups.reset_offsets,
    Opcode.FIND_COORDINATOR: groups.find_coordinator,
    Opcode.BEGIN_TXN: transactions.begin,
    Opcode.COMMIT_TXN: transactions.commit,
    Opcode.ABORT_TXN: transactions.abort,
    Opcode.INIT_PRODUCER: transactions.init_producer,
    Opcode.TXN_COMMIT_OFFSETS: transactions.commit_offsets,
    Opcode.COMMIT_ATTEMPTS: transactions.commit_attempts,
    Opcode.HELLO: session.hello,
    Opcode.AUTHENTICATE: session.authenticate,
    Opcode.PING: session.ping,
    Opcode.START_PUSH: push.start_push,
    Opcode.CREDIT: push.credit,
    Opcode.STOP_PUSH: push.stop_push,
    Opcode.JOIN_PEER: peers.join_peer,
    Opcode.REPLICA_FETCH: peers.replica_fetch,
    Opcode.WRITE_MARKERS: peer_transactions.write_markers,
    Opcode.JOIN_TRANSACTION: peer_transactions.join_transaction,
    Opcode.ABORT_OWNED: peer_transactions.abort_owned,
    Opcode.DESCRIBE_LED: peers.describe_led,
}
