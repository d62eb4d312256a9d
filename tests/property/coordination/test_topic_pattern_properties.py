"""Patterns match as Python's own do where both speak one language, and cannot be made slow or large."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.coordination.topic_pattern import TopicPattern
from flymq.model.errors import InvalidTopicPattern

names = st.text("abA.-_1", min_size=1, max_size=8)
atoms = st.sampled_from(
    ["a", "b", ".", r"\.", "-", "1", "[ab]", "[^a]", "[a-b1-2.]", r"[\d-]", r"\d", r"\w", r"\W", r"\b", "(?i:a)", ""]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,}", "{0,2}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"^{one}$"),
    ),
    max_leaves=8,
)


@given(patterns, names)
def test_a_name_matches_as_it_does_in_python(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


@given(st.one_of(st.text("ab^$|()[]{}*+?.\\-,1dpQE:<>iP", max_size=12), st.text(max_size=12)), names)
def test_any_text_is_a_pattern_or_refused(pattern: str, name: str) -> None:
    try:
        TopicPattern(pattern).matches(name)
    except InvalidTopicPattern as error:
        assert error.message


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*b",
        "(a|a)*b",
        ".*" * 100 + "b",
        "(a?){100}a{100}b",
        "(a?){900}b",
        "(((a?){9}){10}){10}b",
        "(x|y|z|.*){150}!",
        "(" * 400 + "a*" + ")" * 400 + "b",
    ],
    ids=lambda pattern: pattern[:20],
)
def test_patterns_that_make_others_search_for_ages_are_matched(pattern: str) -> None:
    """Python's own would not come back from most of these; the timeout of the test is the only clock here."""
    hostile = TopicPattern(pattern)
    assert not any(hostile.matches("a" * length) for length in range(0, 250, 25))


@pytest.mark.parametrize(
    "pattern",
    ["a{5000}", "((a{99}){99}){99}", ".{1000}", "(.*){1000}", "(x|y|z|.*){1000}", ".{1000}" * 100],
    ids=lambda pattern: pattern[:20],
)
def test_a_pattern_that_repeats_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidTopicPattern, match=r"invalid repetition size|pattern too large"):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", r"missing \)"),
        (")", r"unexpected \)"),
        ("a**", r"bad repetition operator: \*\*"),
        ("*a", "no argument for repetition operator"),
        ("[", "missing ]"),
        ("[b-a]", "invalid character class range: b-a"),
        (r"\1", "invalid escape sequence"),
        ("(?=a)", r"invalid perl operator: \(\?="),
        ("a{2,1}", "invalid repetition size"),
        (r"\pL", "Unicode classes"),
        (r"[\P{Greek}]", "Unicode classes"),
        ("\ud800", "not valid Unicode"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused_with_what_is_wrong(pattern: str, problem: str) -> None:
    with pytest.raises(InvalidTopicPattern, match=f"^the pattern .*: .*{problem}"):
        TopicPattern(pattern)


def test_a_pattern_is_not_longer_than_it_may_be() -> None:
    assert TopicPattern("a" * 1000).matches("a" * 1000)
    with pytest.raises(InvalidTopicPattern, match="at most 1000 characters, this one has 1001"):
        TopicPattern("a" * 1001)


def test_a_list_of_names_fits_as_far_as_it_is_short_enough() -> None:
    listed = [f"orders.{number:03}" for number in range(83)]
    pattern = TopicPattern("|".join(listed))
    assert all(map(pattern.matches, listed))
    assert not pattern.matches("orders.083")


def test_a_pattern_means_the_whole_name() -> None:
    pattern = TopicPattern("orders|bills-.*")
    assert [pattern.matches(name) for name in ("orders", "orders-eu", "my-orders", "bills-eu")] == [
        True,
        False,
        False,
        True,
    ]


def test_a_quoted_name_means_itself() -> None:
    pattern = TopicPattern(r"\Qa.b\E|c")
    assert [pattern.matches(name) for name in ("a.b", "axb", "c")] == [True, False, True]


@pytest.mark.parametrize("pattern", ["(?i)ORDERS", "(?P<name>orders)", "[[:alpha:]]+", r"\borders\b", r"\Aorders\z"])
def test_what_kafka_brokers_understand_is_understood(pattern: str) -> None:
    assert TopicPattern(pattern).matches("orders")
