"""What the stories share in which a Java program copies a topic in transactions."""

from collections import Counter

from tests.integration.cluster import until
from tests.interop.java_programs import JavaProgram
from tests.interop.records import committed_records

LINES, COPY, PARTITIONS = "lines", "copy", 3
STORY_SECONDS = 180.0


def copied(bootstrap: str) -> Counter[bytes]:
    """Returns how often each line was copied in a committed transaction."""
    return Counter(message.value() or b"" for message in committed_records(bootstrap, COPY, partitions=PARTITIONS))


def until_copied(bootstrap: str, program: JavaProgram, count: int) -> Counter[bytes]:
    def look() -> Counter[bytes] | None:
        program.check()
        found = copied(bootstrap)
        return found if found.total() >= count else None

    return until(look, f"{count} lines are copied", seconds=STORY_SECONDS)
