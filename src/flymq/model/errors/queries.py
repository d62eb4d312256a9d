"""What can be wrong with an SQL query over topics."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class TableNotFound(FlyMQError):
    """The query uses a table that is not a topic."""

    code = "TABLE_NOT_FOUND"
    hint = "`flymq topic list` lists the topics; quote a name with a dot or a dash in `backticks`."


class QueryFailed(FlyMQError):
    """The query failed in Spark."""

    code = "QUERY_FAILED"
    hint = "The query `DESCRIBE topic` lists the columns of a topic."
