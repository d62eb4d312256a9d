"""Patterns match what Python's own say, and cannot be made slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.coordination.topic_pattern import TopicPattern
from flymq.model.errors import InvalidTopicPattern

names = st.text("ab.-_1", min_size=1, max_size=8)
atoms = st.sampled_from(
    ["a", "b", ".", r"\.", "-", "1", "[ab]", "[^a]", "[a-b1-2.]", r"[\d-]", r"\d", r"\w", r"\W", ""]
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


@given(st.text("ab^$|()[]{}*+?.\\-,1dQE:", max_size=12), names)
def test_any_text_is_a_pattern_or_refused(pattern: str, name: str) -> None:
    try:
        TopicPattern(pattern).matches(name)
    except InvalidTopicPattern as error:
        assert error.message


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", ".*.*.*.*.*.*.*.*b", "(a?){100}a{100}b"])
def test_patterns_that_make_others_search_for_ages_are_quick(pattern: str) -> None:
    began_s = time.process_time()
    assert not TopicPattern(pattern).matches("a" * 249)
    assert time.process_time() - began_s < 2


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a**",
        "*a",
        "[",
        "[b-a]",
        r"\1",
        r"\b",
        "(?=a)",
        "(?i)a",
        "a{",
        "a{2,1}",
        "a{5000}",
        "((a{99}){99}){99}",
    ],
)
def test_what_is_not_supported_is_refused_with_its_place(pattern: str) -> None:
    with pytest.raises(InvalidTopicPattern, match="pattern"):
        TopicPattern(pattern)


def test_a_pattern_is_not_longer_or_deeper_than_it_may_be() -> None:
    with pytest.raises(InvalidTopicPattern, match="at most"):
        TopicPattern("a" * 1001)
    with pytest.raises(InvalidTopicPattern, match="deeper"):
        TopicPattern("(" * 100 + ")" * 100)


def test_a_quoted_name_means_itself() -> None:
    pattern = TopicPattern(r"\Qa.b\E|c")
    assert [pattern.matches(name) for name in ("a.b", "axb", "c")] == [True, False, True]
