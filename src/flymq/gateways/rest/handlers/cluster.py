"""The cluster, its brokers and transactions."""

from __future__ import annotations

from flymq import __version__
from flymq.broker.service.transactions import TransactionValue
from flymq.gateways.rest.handlers.groups import to_names
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.operations import Call
from flymq.gateways.rest.schema.paging import take_page
from flymq.model.errors import NoSuchResource


async def describe_cluster(call: Call) -> shapes.ClusterDescription:
    """Describe the cluster."""
    service = call.service
    topics = service.topics.all(call.caller, internal=False)
    counts = await service.cluster_states.count(call.caller)
    return shapes.ClusterDescription(
        service.cluster.cluster_id,
        service.cluster.controller_id,
        len(_brokers(call)),
        len(topics),
        sum(len(topic.partitions) for topic in topics),
        len(service.groups.all(call.caller)),
        counts.offline,
        counts.under_replicated,
        counts.under_min_isr,
    )


async def list_brokers(call: Call) -> shapes.Brokers:
    """List the brokers of the cluster."""
    return shapes.Brokers(_brokers(call))


async def describe_broker(call: Call) -> shapes.BrokerDescription:
    """Describe a broker."""
    for broker in _brokers(call):
        if broker.id == call.path["broker"]:
            return broker
    raise NoSuchResource(f"there is no broker {call.path['broker']}", hint="List the brokers with GET /api/v1/brokers.")


def _brokers(call: Call) -> list[shapes.BrokerDescription]:
    cluster = call.service.cluster
    host, port = call.request.scope["server"]
    return [
        shapes.BrokerDescription(
            broker.broker_id,
            broker.host,
            broker.port,
            __version__,
            controller=broker.broker_id == cluster.controller_id,
            rack=broker.rack,
            live=broker.is_live,
            draining=broker.is_draining,
        )
        for broker in cluster.brokers((host, port or 0))
    ]


async def list_transactions(call: Call) -> shapes.TransactionPage:
    """List transactional ids and the state of their transactions."""
    taken, token = take_page(call.service.transactions.all(call.caller), lambda item: item[0], call.query)
    return shapes.TransactionPage([_describe(*item) for item in taken], token)


async def describe_transaction(call: Call) -> shapes.TransactionDescription:
    """Describe the transaction of a transactional id."""
    name = call.path["transaction"]
    return _describe(name, call.service.transactions.get(call.caller, name))


async def abort_transaction(call: Call) -> shapes.TransactionDescription:
    """Abort the open transaction of a transactional id."""
    name, transactions = call.path["transaction"], call.service.transactions
    await transactions.abort(call.caller, name)
    return _describe(name, transactions.get(call.caller, name))


def _describe(name: str, value: TransactionValue) -> shapes.TransactionDescription:
    return shapes.TransactionDescription(
        name,
        value.state.name.lower(),
        value.producer.producer_id,
        value.producer.epoch,
        value.timeout_ms,
        value.began_at_ms,
        to_names(value.partitions),
        list(value.groups),
    )
