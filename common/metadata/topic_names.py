"""Which topic names are legal (core).

Answers to Kafka's Topic class. A topic's name becomes a directory name on every disk that holds one of its partitions, so
nothing may reach the file system before it has passed `validate_topic_name`.

Easy to get wrong: `.` and `_` are both legal, but Kafka maps both to `_` in metric names, so that `a.b` and `a_b` may not
exist side by side.
"""

import re

TOPIC_NAME_LENGTH_MAX = 249

INTERNAL_TOPIC_NAMES = ("__consumer_offsets", "__transaction_state")

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(ValueError):
    """The name cannot be a topic's; the message says why."""


def validate_topic_name(name: str) -> None:
    """Raises InvalidTopicName unless `name` can name a topic."""
    if not name:
        raise InvalidTopicName("a topic name may not be empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic name may not be '{name}'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}")
    # fullmatch and not match with `$`, which would let a trailing line feed through.
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicName(f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'")


def collision_key(name: str) -> str:
    """Two topics whose keys are equal would share their metric names and may not exist together."""
    return name.replace(".", "_")


def is_internal_topic(name: str) -> bool:
    """Whether Kafka itself keeps state in this topic, so that clients see it marked."""
    return name in INTERNAL_TOPIC_NAMES
