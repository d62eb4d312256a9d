"""What the pages about SQL, backups and declarative pipelines show is what can be typed, and the queries make sense."""

import re
import shlex
from itertools import takewhile
from pathlib import Path

import click
import pytest

from flymq.cli.app import app
from flymq.client.serializers import to_json
from flymq.client.sync.client import FlyMQClient
from flymq.spark.sql import TopicViews
from flymq.testing import running_broker

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = ["sql", "backup", "declarative-pipelines"]
_SHOWN = re.compile(r"^\$ (flymq .+)$", re.MULTILINE)


def commands(page):
    """The command lines of a page, as words, without what the shell does with their output."""
    lines = [shlex.split(line)[1:] for line in _SHOWN.findall((HOW_TO / f"{page}.md").read_text())]
    return [list(takewhile(lambda word: word not in ("|", ">"), words)) for words in lines]


def parse(words):
    """Parse a command line up to where it would be carried out; return the parameters."""
    context = app.make_context("flymq", list(words))
    command: click.Command | None = app
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, list(words), parent=context)
    return context.params


@pytest.mark.parametrize("words", [words for page in PAGES for words in commands(page)], ids=" ".join)
def test_every_command_that_is_shown_can_be_typed(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("shop").mkdir()
    for name in ("report.py", "report.sql"):
        Path(name).touch()
    assert parse(words)


def test_every_query_that_is_shown_makes_sense(spark):
    orders = [{"id": n, "shop": "north", "price": n + 0.5, "items": [{"sku": "tea", "n": n}]} for n in range(4)]
    with running_broker() as broker, FlyMQClient(broker.address) as client:
        for topic in ("orders", "app.log-2"):
            client.create_topic(topic, 1)
        client.produce_batch("orders", [to_json(order) for order in orders])
        views = TopicViews(spark, client, {"bootstrapServers": broker.address})
        queries = [parse(words)["query"] for words in commands("sql")]
        results = [views.query(query) for query in queries]
        sums, items = (result.collect() for result in results[:2])
        for table in spark.catalog.listTables():
            spark.catalog.dropTempView(table.name)
    assert [tuple(row) for row in sums] == [("north", 4, 8.0)]
    assert [tuple(row) for row in items] == [(3, "tea", 3.5), (2, "tea", 2.5)]
