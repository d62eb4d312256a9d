import pytest

from flymq.cli.formats.units import parse_bytes, parse_duration_ms, show_bytes, show_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("10m", 600_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("2 W", 1_209_600_000),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "10", "m", "10 parsecs", "-5s", "1e3s", "10m ago"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number with one of the units"):
        parse_duration_ms(text)


@pytest.mark.parametrize(("text", "count"), [("64KiB", 65_536), ("1GB", 10**9), ("1.5 mib", 1_572_864), ("12b", 12)])
def test_sizes_know_powers_of_ten_and_of_two(text: str, count: int) -> None:
    assert parse_bytes(text) == count


def test_amounts_are_shown_in_a_unit_that_suits_them() -> None:
    assert [show_bytes(count) for count in (0, 1023, 1536, 5 << 30, 3 << 50)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]
    assert [show_duration_ms(ms) for ms in (0, 999, 1_000, 90_000, 604_800_000)] == [
        "0 ms",
        "999 ms",
        "1 s",
        "1.5 min",
        "7 d",
    ]
