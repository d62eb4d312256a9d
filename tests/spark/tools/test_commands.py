"""The commands on Spark, as they are typed, in the session of the tests: one that is active is used and stays."""

import json
import sys

import pytest

from flymq.cli.app import app
from flymq.cli.exit_codes import run
from flymq.client.sync.client import FlyMQClient
from flymq.spark.session import open_session
from flymq.testing import running_broker


@pytest.fixture(scope="module")
def shop():
    """A broker with a topic of two orders and a group that has read one."""
    with running_broker() as broker, FlyMQClient(broker.address) as client:
        client.create_topic("orders", 1)
        client.produce_batch("orders", [("ann", b'{"id": 1, "price": 2.5}'), ("bob", b'{"id": 2, "price": 4}')])
        client.admin.reset_offsets("billing", "orders", {0: 1})
        yield broker


@pytest.fixture
def flymq(spark, shop, capsys, monkeypatch):
    monkeypatch.setenv("FLYMQ_BOOTSTRAP", "")  # a command may set it for what it starts

    def command(*words, server=shop.address):
        code = run(app, ["--server", server, *words])
        return code, *capsys.readouterr()

    yield command
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)


def test_a_session_that_is_active_is_used_and_stays(spark):
    with open_session("another") as session:
        assert session is spark
    assert spark.range(3).count() == 3


def test_a_query_is_printed_as_csv(flymq):
    code, out, _ = flymq("sql", "SELECT id, price, key FROM orders ORDER BY id", "-o", "csv")
    assert (code, out) == (0, "id,price,key\n1,2.5,ann\n2,4.0,bob\n")


def test_a_wrong_table_ends_with_two_lines_and_a_code(flymq):
    code, out, err = flymq("sql", "SELECT * FROM oders")
    assert (code, out) == (1, "")
    assert "there is no topic 'oders'" in err
    assert "Try: Did you mean `orders`?" in err


def test_a_program_finds_a_session_its_arguments_and_the_broker(flymq, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    program = tmp_path / "report.py"
    program.write_text(
        "import os, sys\n"
        "options = {'bootstrapServers': os.environ['FLYMQ_BOOTSTRAP'], 'subscribe': sys.argv[1]}\n"
        "print(sys.argv[1], 'has', spark.read.format('flymq').options(**options).load().count())\n"
    )
    code, out, _ = flymq("pipeline", "run", str(program), "orders")
    assert (code, out) == (0, "orders has 2\n")


def test_statements_of_a_file_see_topics_and_what_those_before_have_made(flymq, tmp_path):
    file = tmp_path / "report.sql"
    file.write_text(
        "CREATE TEMPORARY VIEW dear AS SELECT id, price FROM orders WHERE price > 3;\n"
        "SELECT * FROM dear;\n"
        "SELECT count(*) AS n FROM dear\n"
    )
    code, out, _ = flymq("pipeline", "run", str(file))
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [["id", "price"], ["2", "4.0"], ["n"], ["1"]]


def test_a_broker_is_backed_up_and_restored_elsewhere(flymq, tmp_path):
    code, out, _ = flymq("backup", "create", str(tmp_path), "--name", "monday", "-o", "json")
    assert (code, json.loads(out)["topics"]) == (0, {"orders": 2})
    with running_broker() as empty, FlyMQClient(empty.address) as client:
        code, out, err = flymq("restore", str(tmp_path / "monday"), server=empty.address)
        assert (code, out.splitlines()[-1].split()) == (0, ["orders", "1", "2"]), err
        assert [record.key for record in client.fetch("orders")] == [b"ann", b"bob"]
        code, _, err = flymq("restore", str(tmp_path / "monday"), server=empty.address)
        assert code == 1
        assert "orders already exists" in err
        code, _, err = flymq("restore", str(tmp_path / "monday"), "--replace", "--yes", server=empty.address)
        assert code == 0, err
        assert [at.offset for at in client.admin.describe_group("billing").positions] == [1]
