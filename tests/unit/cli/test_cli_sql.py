"""How `flymq sql` prints what Spark returns."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row

from flymq.cli.commands.sql import _as_csv, _as_json, _cell

COLUMNS = ["id", "name", "raw", "when", "items"]
values: Callable[..., Row] = Row  # PySpark's types know only rows of strings
ROW = values(1, "a,b", b"\xff\x00", datetime(2026, 1, 2, 3, 4, 5, 678000), [Row(sku="x", n=None)])


def test_json_is_one_object_a_line():
    (line,) = _as_json(COLUMNS, [ROW])
    assert line == (
        '{"id":1,"name":"a,b","raw":"0xff00","when":"2026-01-02T03:04:05.678000","items":[{"sku":"x","n":null}]}\n'
    )


def test_csv_has_a_heading_quotes_what_needs_it_and_leaves_null_empty():
    lines = list(_as_csv(COLUMNS, [ROW, values(None, "", None, None, None)]))
    assert lines == [
        "id,name,raw,when,items\n",
        '1,"a,b",0xff00,2026-01-02 03:04:05.678,"[{""sku"":""x"",""n"":null}]"\n',
        ",,,,\n",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "true"),
        (1.5, "1.5"),
        (Decimal("1.50"), "1.50"),
        (bytearray(b"text"), "text"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02 00:00:00.000+00:00"),
        ({"a": [1, 2]}, '{"a":[1,2]}'),
    ],
)
def test_a_cell_of_a_table_is_short_text(value, text):
    assert _cell(value) == text


def test_the_help_of_every_command_is_there_without_loading_spark():
    program = """if True:
        import sys
        from flymq.cli.app import COMMANDS, app
        from flymq.cli.exit_codes import run
        for name in COMMANDS:
            assert run(app, [name, "--help"]) == 0
        print("\\npyspark" if "pyspark" in sys.modules else "\\nlight")
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "light", ended.stderr
