"""Reads and writes the meta.properties of a log directory (shell).

The rules are in `meta_properties`. A file that cannot be parsed means the same as one that cannot be read: the directory is
unreadable. Such a directory never counts as unformatted.
"""

from collections.abc import Awaitable

from common.environment.interface import LogDir
from common.storage.meta_properties import MetaProperties, format_meta_properties, parse_meta_properties
from common.storage.names import META_PROPERTIES_FILE


async def load_meta_properties(log_dir: LogDir) -> MetaProperties | None:
    """Returns the content, None if the directory is not formatted. Raises MalformedMetaProperties and LogDirError."""
    content = await log_dir.read_file(META_PROPERTIES_FILE)
    return None if content is None else parse_meta_properties(content)


def store_meta_properties(log_dir: LogDir, properties: MetaProperties) -> Awaitable[None]:
    """Replaces the file. The new content is durable when the returned awaitable completes."""
    return log_dir.replace_file(META_PROPERTIES_FILE, format_meta_properties(properties))
