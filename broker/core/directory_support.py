"""Whether a broker may run with the directories that it has left (core).

Below metadata.version 3.7-IV2 the controller knows no directories. If one of several fails, it can neither move the leaders
in that directory nor keep others from being elected there. So such a broker has to end, as it would after the loss of its
only directory: then it is fenced, and all of its leaders move. Brokers of Apache Kafka with several directories end as soon
as the level falls; ours serve as long as every directory works.

A controller refuses the registration of several directories below that level. But a broker registers only those that are
online, so the rule is needed at a start, too.
"""

from common.log_dirs.log_directories import LogDirectories
from common.metadata.metadata_version import DIRECTORY_ASSIGNMENT_LEVEL, is_directory_assignment_supported, level_name


def reason_to_end(directories: LogDirectories, level: int) -> str | None:
    """Returns why a broker with these directories has to end at this metadata.version; None if it may run."""
    offline = directories.offline
    if is_directory_assignment_supported(level) or not offline or len(directories.data_dirs) == 1:
        return None
    needed = level_name(DIRECTORY_ASSIGNMENT_LEVEL)
    return (
        f"log directory {offline[0].path} is offline, and at metadata.version {level_name(level)} the controller cannot "
        f"move the leaders of one directory away; raise metadata.version to {needed} or later, then start this broker again"
    )
