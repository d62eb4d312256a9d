"""Topics as tables, in a real session."""

import pytest

from flymq.cli.commands.sql import print_rows
from flymq.client.serializers import to_json
from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import QueryFailed, TableNotFound
from flymq.spark.sql import TopicViews, query_failure
from flymq.testing import running_broker


@pytest.fixture(scope="module")
def broker():
    """A broker of its own, for the names of its topics stand in the queries."""
    with running_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker):
    with FlyMQClient(broker.address, value_serializer=to_json) as client:
        client.create_topic("sales", 2)
        for number in range(20):
            sale = {"id": number, "price": number / 2, "shop": "north" if number % 4 else "south", "offset": "field"}
            client.produce("sales", sale, key=f"k{number % 3}")
        client.produce("sales", None, key="k0")
        client.create_topic("app.log-2", 1)
        client.create_topic("raw", 1)
        client.create_topic("empty", 1)
        with client.producer(value_serializer=None) as plain:
            plain.produce("app.log-2", "it's late")
            plain.produce("raw", b"\xff\x00", key=b"\xfe")
        client.flush()
        yield client


@pytest.fixture
def views(spark, client, broker):
    yield TopicViews(spark, client, {"bootstrapServers": broker.address})
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)


def test_fields_of_json_values_are_columns_that_sql_can_count_and_sum(views):
    found = views.query("SELECT shop, count(*) AS n, sum(price) AS total FROM sales WHERE id < 16 GROUP BY shop")
    assert {tuple(row) for row in found.collect()} == {("south", 4, 12.0), ("north", 12, 48.0)}


def test_key_partition_offset_and_timestamp_stand_beside_them_and_keep_their_names(views):
    found = views.query("SELECT * FROM sales")
    assert found.columns == ["id", "price", "shop", "value_offset", "key", "partition", "offset", "timestamp"]
    assert found.where("value_offset = 'field'").selectExpr("max(offset) < 21").first()[0]


def test_a_null_value_is_a_row_of_nulls(views):
    (row,) = views.query("SELECT id, shop, key FROM sales WHERE id IS NULL").collect()
    assert tuple(row) == (None, None, "k0")


def test_text_is_one_column_and_a_name_with_dots_goes_into_quotes(views):
    (row,) = views.query("SELECT value, offset FROM `app.log-2`").collect()
    assert tuple(row) == ("it's late", 0)


def test_bytes_stay_bytes(views):
    (row,) = views.query("SELECT key, value FROM raw").collect()
    assert (bytes(row.key), bytes(row.value)) == (b"\xfe", b"\xff\x00")


def test_an_empty_topic_is_an_empty_table(views):
    assert views.query("SELECT value, key, offset FROM empty").collect() == []


def test_only_the_topics_of_the_query_are_registered(views, spark):
    views.query("WITH s AS (SELECT id FROM sales) SELECT count(*) FROM s JOIN empty ON id = offset")
    assert {table.name for table in spark.catalog.listTables()} == {"sales", "empty"}


def test_a_topic_joined_with_itself_is_read_for_each_side(views):
    joined = views.query("SELECT count(*) FROM sales a JOIN sales b ON a.id = b.id WHERE a.offset >= 0 AND b.id < 5")
    assert joined.first()[0] == 5


def test_a_topic_can_be_described(views):
    rows = views.query("DESCRIBE sales").collect()
    assert [(row.col_name, row.data_type) for row in rows][:2] == [("id", "bigint"), ("price", "double")]


def test_a_wrong_table_is_told_with_the_nearest_name(views):
    with pytest.raises(TableNotFound, match="no topic 'slaes'") as failure:
        views.query("SELECT * FROM slaes")
    assert failure.value.hint == "Did you mean `sales`?"


def test_a_dot_without_quotes_is_told(views, client):
    client.create_topic("two.parts", 1)
    with pytest.raises(TableNotFound, match=r"must be quoted: `two\.parts`"):
        views.query("SELECT * FROM two.parts")


@pytest.mark.parametrize("query", ["SELEC 1", "SELECT nosuch FROM sales", "SELECT * FROM sales WHERE AND", ""])
def test_a_query_that_makes_no_sense_is_told_in_one_line(views, query):
    with pytest.raises(QueryFailed) as failure:
        views.query(query)
    assert failure.value.message and "\n" not in failure.value.message


def test_an_error_of_a_row_is_told_without_a_stack(views):
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as raised:
        views.query("SELECT 1 / (id - id) FROM sales").collect()
    failure = query_failure(raised.value)
    assert isinstance(failure, QueryFailed)
    assert "\n" not in failure.message


def test_a_table_is_cut_after_a_thousand_rows_and_says_so(views, capsys):
    print_rows(views.query("SELECT id FROM range(1500) ORDER BY id"), "table")
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 + 1000
    assert "-o csv" in err


def test_csv_and_json_print_all_rows(views, capsys):
    print_rows(views.query("SELECT id FROM range(1500)"), "csv")
    assert len(capsys.readouterr().out.splitlines()) == 1 + 1500
    print_rows(views.query("SELECT id FROM range(1500)"), "json")
    assert len(capsys.readouterr().out.splitlines()) == 1500
