"""The table of operations: opcode, request, response. Gateway and client both use it; adding one is one line."""

from __future__ import annotations

from typing import NamedTuple

from flymq.wire.native.messages import groups, peer_transactions, peers, push, records, session, topics, transactions
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.opcodes import Opcode


class Operation(NamedTuple):
    """A request and its response; `answer` is None if there is no response."""

    request: type[Message]
    answer: type[Message] | None


OPERATIONS: dict[Opcode, Operation] = {
    Opcode.PRODUCE: Operation(records.Produce, records.ProduceAnswer),
    Opcode.CONSUME: Operation(records.Consume, records.ConsumeAnswer),
    Opcode.CREATE_TOPIC: Operation(topics.CreateTopic, topics.CreateTopicAnswer),
    Opcode.DELETE_TOPIC: Operation(topics.DeleteTopic, session.Done),
    Opcode.LIST_TOPICS: Operation(topics.ListTopics, topics.ListTopicsAnswer),
    Opcode.FETCH: Operation(records.Fetch, records.FetchAnswer),
    Opcode.PRODUCE_BATCH: Operation(records.ProduceBatch, records.ProduceBatchAnswer),
    Opcode.LIST_OFFSETS: Operation(records.ListOffsets, records.ListOffsetsAnswer),
    Opcode.METADATA: Operation(topics.Metadata, topics.MetadataAnswer),
    Opcode.DESCRIBE_TOPIC: Operation(topics.DescribeTopic, topics.DescribeTopicAnswer),
    Opcode.ALTER_TOPIC: Operation(topics.AlterTopic, session.Done),
    Opcode.ADD_PARTITIONS: Operation(topics.AddPartitions, session.Done),
    Opcode.DELETE_RECORDS: Operation(records.DeleteRecords, records.DeleteRecordsAnswer),
    Opcode.DESCRIBE_CLUSTER: Operation(topics.DescribeCluster, topics.DescribeClusterAnswer),
    Opcode.PLACE_REPLICAS: Operation(topics.PlaceReplicas, session.Done),
    Opcode.SUBSCRIBE: Operation(groups.Subscribe, groups.SubscribeAnswer),
    Opcode.COMMIT: Operation(groups.Commit, groups.CommitAnswer),
    Opcode.HEARTBEAT: Operation(groups.Heartbeat, session.Done),
    Opcode.LEAVE: Operation(groups.Leave, session.Done),
    Opcode.SYNC: Operation(groups.Sync, groups.SyncAnswer),
    Opcode.FETCH_OFFSETS: Operation(groups.FetchOffsets, groups.FetchOffsetsAnswer),
    Opcode.LIST_GROUPS: Operation(groups.ListGroups, groups.ListGroupsAnswer),
    Opcode.DESCRIBE_GROUP: Operation(groups.DescribeGroup, groups.DescribeGroupAnswer),
    Opcode.DELETE_GROUP: Operation(groups.DeleteGroup, session.Done),
    Opcode.RESET_OFFSETS: Operation(groups.ResetOffsets, groups.ResetOffsetsAnswer),
    Opcode.FIND_COORDINATOR: Operation(groups.FindCoordinator, groups.FindCoordinatorAnswer),
    Opcode.BEGIN_TXN: Operation(transactions.BeginTxn, session.Done),
    Opcode.COMMIT_TXN: Operation(transactions.CommitTxn, transactions.EndTxnAnswer),
    Opcode.ABORT_TXN: Operation(transactions.AbortTxn, transactions.EndTxnAnswer),
    Opcode.INIT_PRODUCER: Operation(transactions.InitProducer, transactions.InitProducerAnswer),
    Opcode.TXN_COMMIT_OFFSETS: Operation(transactions.TxnCommitOffsets, groups.CommitAnswer),
    Opcode.COMMIT_ATTEMPTS: Operation(transactions.CommitAttempts, session.Done),
    Opcode.HELLO: Operation(session.Hello, session.HelloAnswer),
    Opcode.AUTHENTICATE: Operation(session.Authenticate, session.AuthenticateAnswer),
    Opcode.PING: Operation(session.Ping, session.Done),
    Opcode.START_PUSH: Operation(push.StartPush, session.Done),
    Opcode.CREDIT: Operation(push.Credit, None),
    Opcode.STOP_PUSH: Operation(push.StopPush, session.Done),
    Opcode.JOIN_PEER: Operation(peers.JoinPeer, session.Done),
    Opcode.REPLICA_FETCH: Operation(peers.ReplicaFetch, peers.ReplicaFetchAnswer),
    Opcode.WRITE_MARKERS: Operation(peer_transactions.WriteMarkers, peer_transactions.WriteMarkersAnswer),
    Opcode.JOIN_TRANSACTION: Operation(peer_transactions.JoinTransaction, session.Done),
    Opcode.ABORT_OWNED: Operation(peer_transactions.AbortOwned, peer_transactions.AbortOwnedAnswer),
    Opcode.DESCRIBE_LED: Operation(peers.DescribeLed, peers.DescribeLedAnswer),
}

UNASKED: dict[Opcode, type[Message]] = {
    Opcode.DELIVER: push.Deliver,
    Opcode.ERROR: session.ErrorAnswer,
}
"""Frames of the broker that are not the response to a request."""

OPCODE_OF: dict[type[Message], Opcode] = {operation.request: opcode for opcode, operation in OPERATIONS.items()}
