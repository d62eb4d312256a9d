"""What can be wrong with an SQL query over topics."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class TableNotFound(FlyMQError):
    """The query names a table that is no topic."""

    code = "TABLE_NOT_FOUND"
    hint = "flymq topic list shows the topics; a name with a dot or a dash goes into `backquotes`."


class QueryFailed(FlyMQError):
    """Spark cannot run the query."""

    code = "QUERY_FAILED"
    hint = "DESCRIBE and the name of a topic, as a query, shows its columns."
