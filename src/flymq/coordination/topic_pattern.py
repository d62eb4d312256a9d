"""Patterns of topic names, matched in time that grows with the length of the name and with nothing else.

Members choose a pattern and the broker runs it, so none may keep the broker busy. As in RE2, whose language Kafka's
clients use here, a pattern is a machine that reads a name once: without lookahead and backreferences, and the whole
name must match.

    pattern   branch | branch | …
    branch    piece piece …
    piece     atom, then nothing or one of   *   +   ?   {m}   {m,}   {m,n}   each with an idle ? behind it
    atom      a character   .   [a-z]   [^a-z]   (pattern)   (?:pattern)   ^   $   \\d \\w \\s and their opposites
              \\Q…\\E, in which everything means itself; a sign after a \\ does, too
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import TypeAlias

from flymq.model.errors import InvalidTopicPattern

PATTERN_LENGTH_MAX = 1_000
_DEPTH_MAX = 50
_STATES_MAX = 1_000
_MOVES_MAX = 20_000

Chars: TypeAlias = frozenset[str]
_ALL: Chars = frozenset(ascii_letters + digits + "._-")
"""What topic names are made of: anything else in a pattern matches nothing."""
_ESCAPED: dict[str, Chars] = {
    "d": frozenset(digits),
    "D": _ALL - frozenset(digits),
    "w": frozenset(ascii_letters + digits + "_"),
    "W": frozenset(".-"),
    "s": frozenset(),
    "S": _ALL,
}
_REPEATS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


# --- what a pattern says --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Begin:
    """Only before the first character."""


@dataclass(frozen=True, slots=True)
class _End:
    """Only behind the last one."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    branches: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    low: int
    high: int | None


_Node: TypeAlias = Chars | _Begin | _End | _Sequence | _Choice | _Repeat
_SIGNS: dict[str, _Node] = {"^": _Begin(), "$": _End(), ".": _ALL}


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._wrong("a closing parenthesis without an opening one")
        return node

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"parentheses are nested deeper than {_DEPTH_MAX}")
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _repeated(self, atom: _Node) -> _Node:
        sign = self._text[self._at : self._at + 1]
        if sign in _REPEATS:
            self._at += 1
            low, high = _REPEATS[sign]
        elif sign == "{":
            low, high = self._bounds()
        else:
            return atom
        self._take("?")  # fewest first or most first: whether it matches is the same
        if self._text[self._at : self._at + 1] in ("*", "+", "{"):
            raise self._wrong("a repetition of a repetition needs parentheses")
        return _Repeat(atom, low, high)

    def _bounds(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, 0)].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            raise self._wrong("braces hold one or two numbers")
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > PATTERN_LENGTH_MAX or (most is not None and not least <= most <= PATTERN_LENGTH_MAX):
            raise self._wrong(f"a repetition goes from 0 to {PATTERN_LENGTH_MAX}, upwards")
        self._at = end + 1
        return least, most

    def _atom(self) -> _Node:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            if self._take("Q"):
                return self._quoted()
            return self._escape()
        if char in "*+?{":
            raise self._wrong("there is nothing to repeat")
        return _SIGNS.get(char, frozenset(char))

    def _group(self) -> _Node:
        if self._take("?") and not self._take(":"):
            raise self._wrong("of the groups that begin with (? only (?: is supported")
        inner = self._choice()
        if not self._take(")"):
            raise self._wrong("an opening parenthesis without a closing one")
        return inner

    def _quoted(self) -> _Node:
        end = self._text.find("\\E", self._at)
        literal = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        return _Sequence(tuple(frozenset(char) for char in literal))

    def _escape(self) -> Chars:
        char = self._next()
        if char in _ESCAPED:
            return _ESCAPED[char]
        if char.isalnum():
            raise self._wrong(f"\\{char} is not supported")
        return frozenset(char)

    def _class(self) -> Chars:
        is_negated = self._take("^")
        found: set[str] = set()
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            char = self._next()
            low = self._escape() if char == "\\" else frozenset(char)
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                found |= self._range(low, self._next())
            else:
                found |= low
        return _ALL - found if is_negated else frozenset(found)

    def _range(self, low: Chars, last: str) -> Chars:
        high = self._escape() if last == "\\" else frozenset(last)
        if len(low) != 1 or len(high) != 1 or min(low) > min(high):
            raise self._wrong("a range goes from one character up to another")
        return frozenset(char for char in _ALL if min(low) <= char <= min(high))

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, expected: str) -> bool:
        is_there = self._text.startswith(expected, self._at)
        self._at += len(expected) * is_there
        return is_there

    def _wrong(self, what: str) -> InvalidTopicPattern:
        return InvalidTopicPattern(f"the pattern {self._text[:100]!r}, at character {self._at}: {what}")


# --- the machine that reads names -----------------------------------------------------------------------------------


class TopicPattern:
    """A pattern that is ready to be used. Raises `InvalidTopicPattern` when it is none."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise InvalidTopicPattern(f"a pattern has at most {PATTERN_LENGTH_MAX} characters, this one {len(text)}")
        self.text = text
        self._edges: list[list[tuple[Chars, int]]] = []
        self._free: list[list[tuple[type[_Begin] | type[_End] | None, int]]] = []
        first = self._new()
        self._last = self._add(_Parser(text).parse(), first)
        self._start = self._close({first}, _Begin)
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        states = self._start
        for char in name:
            following = self._moves.get((states, char))
            if following is None:
                following = self._move(states, char)
            if not following:
                return False
            states = following
        return self._last in self._close(states, _End)

    def _move(self, states: frozenset[int], char: str) -> frozenset[int]:
        reached = {target for state in states for chars, target in self._edges[state] if char in chars}
        if len(self._moves) >= _MOVES_MAX:
            self._moves.clear()
        following = self._moves[states, char] = self._close(reached, None)
        return following

    def _close(self, states: Iterable[int], place: type[_Begin] | type[_End] | None) -> frozenset[int]:
        """Return the states and all that are reached from them without a character, at this place of the name."""
        found = set(states)
        pending = list(found)
        while pending:
            for condition, target in self._free[pending.pop()]:
                if target not in found and condition in (None, place):
                    found.add(target)
                    pending.append(target)
        return frozenset(found)

    def _new(self) -> int:
        if len(self._edges) >= _STATES_MAX:
            raise InvalidTopicPattern(f"the pattern {self.text[:100]!r} repeats too much")
        self._edges.append([])
        self._free.append([])
        return len(self._edges) - 1

    def _add(self, node: _Node, start: int) -> int:
        """Lead from `start` through a part of the pattern; return where that ends."""
        if isinstance(node, _Sequence):
            for part in node.parts:
                start = self._add(part, start)
            return start
        if isinstance(node, _Repeat):
            return self._add_repeat(node, start)
        end = self._new()
        if isinstance(node, _Choice):
            for branch in node.branches:
                self._free[self._add(branch, self._follow(start))].append((None, end))
        elif isinstance(node, (_Begin, _End)):
            self._free[start].append((type(node), end))
        else:
            self._edges[start].append((node, end))
        return end

    def _add_repeat(self, node: _Repeat, start: int) -> int:
        for _ in range(node.low):
            start = self._add(node.part, start)
        if node.high is None:
            loop = self._follow(start)
            self._free[self._add(node.part, loop)].append((None, loop))
            return self._follow(loop)
        exits = [start]
        for _ in range(node.high - node.low):
            exits.append(self._add(node.part, self._follow(exits[-1])))
        end = self._new()
        for state in exits:
            self._free[state].append((None, end))
        return end

    def _follow(self, state: int) -> int:
        """Return a new state that is reached from `state` by nothing."""
        following = self._new()
        self._free[state].append((None, following))
        return following
