from datetime import UTC, datetime

import pytest

from flymq.cli.formats.start_position import Kind, Position, parse_position

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position(Kind.EARLIEST)),
        ("latest", Position(Kind.LATEST)),
        ("0", Position(Kind.OFFSET, 0)),
        ("20260131", Position(Kind.OFFSET, 20_260_131)),
        ("-10", Position(Kind.LAST, 10)),
        ("10m", Position(Kind.TIME, NOW_MS - 600_000)),
        ("2026-01-31T12:00Z", Position(Kind.TIME, 1_769_860_800_000)),
        ("2026-01-31 13:00:00.5+01:00", Position(Kind.TIME, 1_769_860_800_500)),
    ],
)
def test_a_position_is_an_end_an_offset_a_count_or_a_time(text: str, position: Position) -> None:
    assert parse_position(text, now_ms=NOW_MS) == position


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 31, 12, 0).astimezone(UTC)
    assert parse_position("2026-01-31T12:00", now_ms=NOW_MS).number == local.timestamp() * 1000


@pytest.mark.parametrize("text", ["", "yesterday", "--1", "1.5", "12:00", "١٢x"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        parse_position(text, now_ms=NOW_MS)
