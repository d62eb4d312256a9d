"""Columns from a sample of JSON values."""

import pytest

from flymq.spark.json_schema import infer_fields, quoted


def test_fields_become_columns_in_the_order_they_were_seen():
    values = [b'{"id": 1, "paid": true}', b'{"id": 2, "name": "Ann", "price": 1.5}']
    assert infer_fields(values) == {"id": "BIGINT", "paid": "BOOLEAN", "name": "STRING", "price": "DOUBLE"}


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("1", "1.5", "DOUBLE"),
        ("1", '"one"', "STRING"),
        ("true", "1", "STRING"),
        ("null", "1", "BIGINT"),
        ("null", "null", "STRING"),
        ("1", str(1 << 63), "DOUBLE"),
        ("[1]", "[2.5]", "ARRAY<DOUBLE>"),
        ("[]", '["a"]', "ARRAY<STRING>"),
        ('[1, "a"]', "[]", "ARRAY<STRING>"),
        ("[1]", "1", "STRING"),
        ('{"a": 1}', '{"b": null}', "STRUCT<`a`: BIGINT, `b`: STRING>"),
        ('{"a": 1}', "1", "STRING"),
        ("{}", "{}", "STRING"),
        ('[{"a": 1}]', '[{"a": 2.5}]', "ARRAY<STRUCT<`a`: DOUBLE>>"),
    ],
)
def test_the_wider_type_wins_whichever_comes_first(one, other, kind):
    samples = [b'{"x": %s}' % text.encode() for text in (one, other)]
    assert infer_fields(samples) == {"x": kind}
    assert infer_fields(samples[::-1]).keys() == {"x"}


@pytest.mark.parametrize("value", [b"hello", b"1", b"[1, 2]", b'"text"', b"\xff\xfe", b"", b'{"cut": '])
def test_what_is_no_object_has_no_fields(value):
    assert infer_fields([value]) == {}
    assert infer_fields([]) == {}


def test_a_few_broken_values_among_objects_do_not_matter():
    assert infer_fields([b'{"a": 1}', b'{"a": 2}', b"broken"]) == {"a": "BIGINT"}
    assert infer_fields([b'{"a": 1}', b"broken", b"broken"]) == {}


def test_names_that_spark_cannot_tell_apart_are_one_column():
    assert infer_fields([b'{"id": 1, "ID": "x", "Id": 2}']) == {"id": "BIGINT"}


def test_a_field_without_a_name_is_left_out():
    assert infer_fields([b'{"": 1, "a": 2}']) == {"a": "BIGINT"}


def test_any_name_can_stand_in_sql():
    assert quoted("app.log") == "`app.log`"
    assert quoted("a`b") == "`a``b`"
