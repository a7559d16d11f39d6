"""The rules for legal topic names (core).

Counterpart of Kafka's Topic class. A topic's name becomes part of a directory name on every disk that holds one of its
partitions, so no name may reach the file system before it has passed `validate_topic_name`.

`.` and `_` are both legal, but Kafka maps both to `_` in metric names, so `a.b` and `a_b` must not exist at the same time.
"""

import re

TOPIC_NAME_LENGTH_MAX = 249

INTERNAL_TOPIC_NAMES = ("__consumer_offsets", "__transaction_state")

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(ValueError):
    """The topic name is illegal; the text says why."""


def validate_topic_name(name: str) -> None:
    """Raises InvalidTopicName if `name` is not a legal topic name."""
    if not name:
        raise InvalidTopicName("a topic name may not be empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic name may not be '{name}'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}")
    # Use fullmatch: match with `$` would accept a trailing line feed.
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicName(f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'")


def collision_key(name: str) -> str:
    """Returns a key that must be unique: two topics with equal keys would share their metric names."""
    return name.replace(".", "_")


def is_internal_topic(name: str) -> bool:
    """Whether Kafka itself keeps state in this topic. Metadata responses mark such topics as internal."""
    return name in INTERNAL_TOPIC_NAMES
