"""Regular expressions over topic names: RE2's syntax, the same matches as Python's `re`, and no expression that hangs."""

import contextlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.core.consumer_group.topic_regex import SETS_MAX, InvalidTopicRegex, TopicMatching, TopicRegex

NAMES = [
    "",
    "a",
    "A",
    "b",
    "ab",
    "aab",
    "a.b",
    "a-b",
    "a_b",
    "a1",
    "1",
    "orders",
    "orders-eu",
    "Orders.eu.2",
    "__consumer_offsets",
]

SAME_AS_PYTHON = [
    "",
    "a",
    "a|b",
    "a|",
    ".*",
    "a+b?",
    "a*?b",
    "(a|b)+",
    "(?:a)(b)",
    "(?P<name>a)b",
    "^a$",
    "^$",
    "a^b",
    "a$b",
    "\\Aa",
    "a.b",
    "a\\.b",
    "[a-c]+",
    "[^a]",
    "[a\\-b]+",
    "[]a]",
    "[^]a]",
    "[\\d_a]+",
    "[-a]",
    "[a-]+",
    "\\d",
    "\\D+",
    "\\w+",
    "\\W+",
    "a\\s*b",
    "\\S+",
    "a{2}b",
    "a{0,1}b",
    "a{1,}b",
    "a{0}b",
    "(?i)orders.*",
    "(?i:ORDERS)-eu",
    "(?s).*",
    "\\x61b",
    "(a*)*b",
    "((a|b)*)+",
    "orders(-eu)?",
    "\\_\\_.*",
    "x{",
]


@pytest.mark.parametrize("text", SAME_AS_PYTHON)
def test_the_same_matches_as_python(text: str) -> None:
    with_python = re.compile(text)
    regex = TopicRegex(text)
    assert [name for name in NAMES if regex.matches(name)] == [name for name in NAMES if with_python.fullmatch(name)]


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("[[:alpha:]]+", {"a", "A", "b", "ab", "aab", "orders"}),
        ("[[:^alpha:]]+", {"1"}),
        ("[[:digit:]a]+", {"a", "a1", "1"}),
        ("a\\Q.b\\E", {"a.b"}),
        ("\\Qa-b", {"a-b"}),
        ("(?<name>a)b", {"ab"}),
        ("a\\z", {"a"}),
        ("\\C", {"a", "A", "b", "1"}),
        ("\\x{61}", {"a"}),
        ("(?i)A(?-i)b", {"ab"}),
        ("(?i)[a]B", {"ab"}),
        ("((?i)A)B", set()),
        ("^*a", {"a"}),
        ("a{,2}b", set()),
    ],
)
def test_what_only_re2_knows(text: str, matching: set[str]) -> None:
    regex = TopicRegex(text)
    assert {name for name in NAMES if regex.matches(name)} == matching


@pytest.mark.parametrize(
    "text",
    [
        "(", ")", "(a", "a)", "[", "[a", "[]", "[b-a]", "[[:nothing:]]", "*", "+a", "a|*", "a**", "a+?*", "a{2,1}",
        "a{1001}", "a{3}{2}", "\\", "\\1", "\\b", "\\pL", "\\q", "\\x6", "\\x{110000}", "(?=a)", "(?!a)", "(?<=a)",
        "(?U)a", "(?", "(?i", "(?P<a", "((a{100}){100}){100}", "(" * 200 + ")" * 200,
    ],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InvalidTopicRegex):
        TopicRegex(text)


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)x", "(a|b)*a(a|b){12}"])
def test_no_expression_takes_long(text: str) -> None:
    """The work grows with the length of the name, not with the ways in which it could match."""
    regex = TopicRegex(text)
    assert not regex.matches("a" * 248 + "c")
    assert regex.work < 20_000


def test_the_memory_of_an_expression_is_bounded() -> None:
    regex = TopicRegex("(a|b)*a(a|b){12}")
    for number in range(4_000):
        name = f"{number:013b}".translate(str.maketrans("01", "ab"))
        assert regex.matches(name) == (name[0] == "a")
    assert len(regex._followed) <= SETS_MAX


def test_names_are_looked_at_a_few_at_a_time() -> None:
    matching = TopicMatching(["a.*", "b"], ["a1", "b", "c", "a2", "d"])
    assert matching.advance(names_max=3, work_max=10_000)
    assert matching.found == {"a.*": {"a1"}, "b": {"b"}}
    assert not matching.advance(names_max=3, work_max=10_000)
    assert matching.found == {"a.*": {"a1", "a2"}, "b": {"b"}}
    slow = TopicMatching(["a.*"], ["a1", "a2"])
    assert slow.advance(names_max=10, work_max=1)
    assert slow.found == {"a.*": {"a1"}}


PARTS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "-"])
TEXTS = st.recursive(
    PARTS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(lambda two: f"({two[0]}){two[1]}"),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(text=TEXTS, names=st.lists(st.text("ab1-", max_size=8), max_size=8))
def test_any_expression_matches_as_in_python(text: str, names: list[str]) -> None:
    regex, with_python = TopicRegex(text), re.compile(text)
    for name in names:
        assert regex.matches(name) == bool(with_python.fullmatch(name))


@pytest.mark.slow
@given(text=st.text(string.printable, max_size=20))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidTopicRegex):
        TopicRegex(text).matches("a.b-c_1")
