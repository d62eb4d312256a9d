from flymq.cli.output import aligned


def test_numbers_stand_to_the_right_and_text_to_the_left() -> None:
    assert aligned([("TOPIC", "PARTITIONS", "SIZE"), ("a", 4, "1.0 KiB"), ("longer", 12, "2 B")]) == [
        "TOPIC    PARTITIONS   SIZE",
        "a                 4   1.0 KiB",
        "longer           12   2 B",
    ]


def test_a_number_that_is_not_known_leaves_a_column_to_the_right() -> None:
    assert aligned([("LAG", "MEMBER"), ("1,200", "-"), ("-", "-")]) == ["  LAG   MEMBER", "1,200   -", "    -   -"]


def test_a_table_without_rows_is_its_heading() -> None:
    assert aligned([("TOPIC", "PARTITIONS")]) == ["TOPIC   PARTITIONS"]
