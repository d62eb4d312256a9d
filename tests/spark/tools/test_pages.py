"""What the pages about SQL, backups and declarative pipelines show is what can be typed, and the queries run."""

import re
import shlex
from pathlib import Path

import click
import pytest

from flymq.cli.app import app
from flymq.client.serializers import to_json
from flymq.client.sync.client import FlyMQClient
from flymq.spark.sql import TopicViews

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = ["sql", "backup", "declarative-pipelines"]
_SHOWN = re.compile(r"^\$ (flymq .+)$", re.MULTILINE)


def commands(page):
    """The command lines of a page, without what the shell does with their output."""
    return [re.split(r" [|>] ", line)[0] for line in _SHOWN.findall((HOW_TO / f"{page}.md").read_text())]


def parse(words):
    """Parse a command line up to where it would be carried out; return the parameters."""
    context, command = app.make_context("flymq", list(words)), app
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, list(words), parent=context)
    return context.params


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands(page)])
def test_every_command_that_is_shown_can_be_typed(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("report.py", "report.sql", "shop"):
        Path(name).touch()
    assert parse(shlex.split(line)[1:])


def test_every_query_that_is_shown_runs(spark, broker):
    orders = [{"id": n, "shop": "north", "price": n + 0.5, "items": [{"sku": "tea", "n": n}]} for n in range(4)]
    with FlyMQClient(broker.address) as client:
        for topic in ("orders", "app.log-2"):
            client.admin.create_topic(topic, 1, exist_ok=True)
        client.produce_batch("orders", [to_json(order) for order in orders])
        views = TopicViews(spark, client, {"bootstrapServers": broker.address})
        queries = [parse(shlex.split(line)[1:])["query"] for line in commands("sql")]
        results = [views.query(query).collect() for query in queries]
        for table in spark.catalog.listTables():
            spark.catalog.dropTempView(table.name)
    assert [tuple(row) for row in results[0]] == [("north", 4, 8.0)]
    assert [row.sku for row in results[1]] == ["tea", "tea"]
