"""The service layer. Every operation of every protocol is a call of one of these, with the caller as first argument.

The service owns what applies to all protocols: authorization and internal topics (gate.py), quotas, traffic and error
counts (accounts.py), creation on first use. Gateways translate their protocol into these calls and back.
"""

from __future__ import annotations

from dataclasses import dataclass

from flymq.broker.access.login import Access
from flymq.broker.service.accounts import Accounts
from flymq.broker.service.brokers import OtherBrokers
from flymq.broker.service.client_metrics import ClientMetrics
from flymq.broker.service.cluster import Cluster
from flymq.broker.service.cluster_state import ClusterStates
from flymq.broker.service.coordinators import Coordinators
from flymq.broker.service.forwarding import Forwarding
from flymq.broker.service.groups import Groups
from flymq.broker.service.members import Members
from flymq.broker.service.peer_transactions import PeerTransactions
from flymq.broker.service.records import Records
from flymq.broker.service.settings import Settings
from flymq.broker.service.topics import Topics
from flymq.broker.service.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Service:
    cluster: Cluster
    coordinators: Coordinators
    topics: Topics
    records: Records
    groups: Groups
    transactions: Transactions
    peer_transactions: PeerTransactions
    members: Members
    settings: Settings
    client_metrics: ClientMetrics
    access: Access
    accounts: Accounts
    brokers: OtherBrokers
    cluster_states: ClusterStates
    forwarding: Forwarding
