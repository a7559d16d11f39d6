"""The content of a disk: what readers see, what is durable, and which changes are still only in the page cache.

Core of the tests. A write changes the cache at once, and becomes durable at the file's next fsync. Creating, renaming or
removing a name becomes durable at the next fsync of its folder. At a power cut, a random choice decides which of the
unsynced changes survive. An fsync of a file does not make its name durable, so a new file also needs an fsync of its folder.
"""

import errno
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

T = TypeVar("T")

SECTOR = 512


def fail(errno_code: int) -> NoReturn:
    raise OSError(errno_code, errno.errorcode.get(errno_code, "error"))


@dataclass(frozen=True, slots=True)
class _Write:
    """A write of `data` at `position`. Without data, a truncation to the size `position`."""

    position: int
    data: bytes | None

    def apply(self, target: bytearray) -> None:
        if len(target) < self.position:
            target.extend(bytes(self.position - len(target)))
        if self.data is None:
            del target[self.position :]
        else:
            target[self.position : self.position + len(self.data)] = self.data

    def torn(self, rng: random.Random) -> "list[_Write]":
        """Draws what is left if the power failed during the write: its beginning, or any subset of its sectors."""
        data = self.data
        if data is None:
            return []
        if rng.random() < 0.5:
            return [_Write(self.position, data[: rng.randint(0, len(data))])]
        # Sectors are aligned to the beginning of the file, not to the beginning of the write.
        cuts = [0, *range(-self.position % SECTOR or SECTOR, len(data), SECTOR), len(data)]
        pieces = [_Write(self.position + start, data[start:end]) for start, end in itertools.pairwise(cuts)]
        return [piece for piece in pieces if rng.random() < 0.5]


@dataclass(slots=True, eq=False)
class FileNode:
    """A file, independent of its name. `content` is what a reader sees."""

    content: bytearray
    modified_ms: int
    durable: bytearray = field(init=False)
    # The changes that the platter does not have yet, in order.
    unsynced: list[_Write] = field(default_factory=list)
    changes: int = 0
    """The number of all changes so far."""
    # Bytes below this position are read from the platter, bytes at or after it from the cache.
    uncached_below: int = 0

    def __post_init__(self) -> None:
        self.durable = bytearray(self.content)

    def write(self, position: int, data: bytes) -> None:
        self._change(_Write(position, data))

    def truncate(self, size: int) -> None:
        self._change(_Write(size, None))
        self.uncached_below = min(self.uncached_below, size)

    def _change(self, write: _Write) -> None:
        write.apply(self.content)
        self.unsynced.append(write)
        self.changes += 1

    def sync(self, changes: int) -> None:
        """Puts the first `changes` of all changes on the platter, as an fsync that started after them."""
        covered = max(0, len(self.unsynced) - (self.changes - changes))
        for write in self.unsynced[:covered]:
            write.apply(self.durable)
        del self.unsynced[:covered]

    def fail_writeback(self) -> None:
        """Acts as a kernel that could not write the dirty pages and marks them clean. Readers see the new data until the
        cache is dropped. The platter gets the file's new size, with zeros where it had nothing before."""
        for write in self.unsynced:
            end = write.position + len(write.data or b"")
            if write.data is None:
                write.apply(self.durable)
            elif len(self.durable) < end:
                self.durable.extend(bytes(end - len(self.durable)))
        self.unsynced.clear()

    def drop_clean_pages(self) -> None:
        """Evicts the clean pages. The next read takes them from the platter."""
        self.content = bytearray(self.durable)
        for write in self.unsynced:
            write.apply(self.content)
        self.uncached_below = min([len(self.durable), *(write.position for write in self.unsynced)])

    def corrupt(self, position: int, size: int) -> None:
        """Flips bits: readers get wrong bytes and no error."""
        if position + size > len(self.content):
            raise ValueError(f"the file has {len(self.content)} bytes, none at {position + size - 1}")
        for image in (self.content, self.durable):
            for index in range(position, min(position + size, len(image))):
                image[index] ^= 0xFF

    def rewrite(self, content: bytes | bytearray) -> None:
        """Replaces the content in the cache and on the platter at once."""
        self.content[:] = content
        self.durable[:] = content
        self.unsynced.clear()

    def after_a_power_cut(self, rng: random.Random) -> bytes:
        """Returns what a power cut right now might leave: each write since the last fsync survives whole, in part or not at
        all."""
        left = bytearray(self.durable)
        for write, is_torn in draw_survivors(self.unsynced, rng):
            for piece in write.torn(rng) if is_torn else (write,):
                piece.apply(left)
        if self.unsynced and len(left) < len(self.content) and rng.random() < 0.25:
            # The file system had written the new size, but not the bytes, when the power failed.
            left.extend(bytes(len(self.content) - len(left)))
        return bytes(left)

    def lose_unsynced(self, rng: random.Random) -> None:
        """Applies a power cut."""
        self.durable = bytearray(self.after_a_power_cut(rng))
        self.unsynced.clear()
        self.content = bytearray(self.durable)
        self.uncached_below = len(self.content)


def draw_survivors(changes: Sequence[T], rng: random.Random) -> list[tuple[T, bool]]:
    """Draws which unsynced changes survive a power cut, in order. The flag is True if only a part of the change survives."""
    way = rng.choice(("nothing", "everything", "beginning", "each"))
    if way == "nothing":
        return []
    if way == "everything":
        return [(change, False) for change in changes]
    if way == "beginning":
        size = rng.randint(0, len(changes))
        return [(change, number == size) for number, change in enumerate(changes[:size], start=1)]
    return [(change, rng.random() < 0.4) for change in changes if rng.random() < 0.6]


@dataclass(slots=True, eq=False)
class FolderNode:
    modified_ms: int
    entries: "dict[str, FileNode | FolderNode]" = field(default_factory=dict)
    durable_entries: "dict[str, FileNode | FolderNode]" = field(default_factory=dict)


Node = FileNode | FolderNode
Place = tuple[FolderNode, str]


@dataclass(slots=True, eq=False)
class _EntryChange:
    """A name that was created (no `source`), removed (no `target`) or renamed (both). A rename is atomic."""

    node: Node
    source: Place | None
    target: Place | None

    def copy(self, copies: "dict[FolderNode, FolderNode]") -> "_EntryChange":
        """Returns this change for copied folders; see `_copy_of`."""
        source, target = (
            None if place is None else (_copy_of_folder(place[0], copies), place[1]) for place in (self.source, self.target)
        )
        return _EntryChange(_copy_of(self.node, copies), source, target)

    def touches(self, folder: FolderNode) -> bool:
        return any(place is not None and place[0] is folder for place in (self.source, self.target))

    def apply(self) -> None:
        if self.target is None:
            assert self.source is not None
            folder, name = self.source
            if folder.durable_entries.get(name) is self.node:
                del folder.durable_entries[name]
            return
        if self.source is not None:
            # An earlier rename of this node may have been lost. Remove its old name, whichever that is, so it ends up in one
            # place. Most renames are of new files, which are the last in their folder.
            for folder in {self.source[0]: None, self.target[0]: None}:
                for name, node in reversed(folder.durable_entries.items()):
                    if node is self.node:
                        del folder.durable_entries[name]
                        break
        folder, name = self.target
        folder.durable_entries[name] = self.node


class DiskStore:
    """The files and folders of one file system. Names are relative to its root."""

    def __init__(self) -> None:
        self.root = FolderNode(0)
        # The changes of names that have not reached the platter yet, in order.
        self._changes: list[_EntryChange] = []

    # --- finding -------------------------------------------------------------------------------------------------
    def find(self, name: str, *, durable: bool = False) -> Node | None:
        """Returns what has this name, on the platter if `durable`. Returns None if nothing has it."""
        node: Node = self.root
        for part in name.split("/") if name else ():
            if not isinstance(node, FolderNode):
                return None
            found = (node.durable_entries if durable else node.entries).get(part)
            if found is None:
                return None
            node = found
        return node

    def folder(self, name: str) -> FolderNode:
        """Returns the folder of this name. Raises OSError."""
        folder = self.find(name)
        if folder is None:
            fail(errno.ENOENT)
        if not isinstance(folder, FolderNode):
            fail(errno.ENOTDIR)
        return folder

    def parent(self, name: str) -> Place:
        """Returns the folder that contains `name` and the last component of the name. Raises OSError."""
        above, _, last = name.rpartition("/")
        return self.folder(above), last

    def walk(self, *, durable: bool = False) -> list[tuple[str, Node]]:
        """Returns every name with its node, sorted, each folder before its entries."""
        found: list[tuple[str, Node]] = []
        _walk("", self.root, durable, found)
        return found

    def top_folders(self) -> list[str]:
        """Returns the names of the folders in the root, sorted."""
        return sorted(name for name, node in self.root.entries.items() if isinstance(node, FolderNode))

    def used_bytes(self) -> int:
        return _used_bytes(self.root)

    # --- changing, as system calls do ----------------------------------------------------------------------------
    def create_file(self, name: str, now_ms: int) -> FileNode:
        """Returns the file of this name and creates it if it does not exist, like open with O_CREAT. Raises OSError."""
        folder, last = self.parent(name)
        node = folder.entries.get(last)
        if node is None:
            node = FileNode(bytearray(), now_ms)
            self._link(folder, last, node)
        if not isinstance(node, FileNode):
            fail(errno.EISDIR)
        return node

    def mkdir(self, name: str, now_ms: int) -> None:
        folder, last = self.parent(name)
        if last in folder.entries:
            fail(errno.EEXIST)
        self._link(folder, last, FolderNode(now_ms))

    def rename(self, old: str, new: str) -> None:
        source, old_last = self.parent(old)
        target, new_last = self.parent(new)
        node = source.entries.get(old_last)
        if node is None:
            fail(errno.ENOENT)
        replaced = target.entries.get(new_last)
        if isinstance(replaced, FolderNode) and (isinstance(node, FileNode) or replaced.entries):
            fail(errno.EISDIR if isinstance(node, FileNode) else errno.ENOTEMPTY)
        if isinstance(replaced, FileNode) and isinstance(node, FolderNode):
            fail(errno.ENOTDIR)
        del source.entries[old_last]
        target.entries[new_last] = node
        self._changes.append(_EntryChange(node, (source, old_last), (target, new_last)))

    def remove(self, name: str) -> Iterator[None]:
        """Removes a file, or a folder and everything in it, one name at a time. A missing name is not an error."""
        node = self.find(name)
        if isinstance(node, FolderNode):
            for entry in sorted(node.entries):
                yield from self.remove(f"{name}/{entry}")
        if node is not None:
            folder, last = self.parent(name)
            del folder.entries[last]
            self._changes.append(_EntryChange(node, (folder, last), None))
            yield

    def begin_sync_of_folder(self, folder: FolderNode) -> Callable[[], None]:
        """Begins an fsync of a folder. The returned function ends it: puts the names that the folder had at the start on the
        platter. An fsync of either folder of a rename makes the rename durable in both."""
        covered = [change for change in self._changes if change.touches(folder)]

        def end() -> None:
            for change in covered:
                # Another fsync may have put it there meanwhile.
                if change in self._changes:
                    self._changes.remove(change)
                    change.apply()

        return end

    def _link(self, folder: FolderNode, name: str, node: Node) -> None:
        folder.entries[name] = node
        self._changes.append(_EntryChange(node, None, (folder, name)))

    # --- changes of the whole store ------------------------------------------------------------------------------
    def put(self, name: str, content: bytes) -> None:
        """Puts a file and its parent folders on the platter at once."""
        *folders, last = name.split("/")
        folder = self.root
        for part in folders:
            found = folder.entries.get(part)
            if found is None:
                found = FolderNode(0)
                _put_entry(folder, part, found)
            if not isinstance(found, FolderNode):
                fail(errno.ENOTDIR)
            folder = found
        _put_entry(folder, last, FileNode(bytearray(content), 0))

    def delete(self, name: str) -> None:
        """Removes a file or folder from the platter at once."""
        folder, last = self.parent(name)
        node = folder.entries.pop(last)
        for name in [name for name, held in folder.durable_entries.items() if held is node]:
            del folder.durable_entries[name]
        self._changes = [change for change in self._changes if change.node is not node]

    def drop_clean_pages(self) -> None:
        for _, node in self.walk():
            if isinstance(node, FileNode):
                node.drop_clean_pages()

    def lose_unsynced(self, rng: random.Random) -> None:
        """Applies a power cut."""
        for change, _ in draw_survivors(self._changes, rng):
            change.apply()
        self._changes.clear()
        self.root.entries = dict(self.root.durable_entries)
        for _, node in self.walk(durable=True):
            if isinstance(node, FolderNode):
                node.entries = dict(node.durable_entries)
            else:
                node.lose_unsynced(rng)

    def after_a_power_cut(self, rng: random.Random) -> dict[str, bytes]:
        """Returns the files that a power cut right now might leave, as `rng` draws them. The store itself does not
        change."""
        copies: dict[FolderNode, FolderNode] = {}
        root = _copy_of_folder(self.root, copies)
        for change, _ in draw_survivors(self._changes, rng):
            change.copy(copies).apply()
        left: list[tuple[str, Node]] = []
        _walk("", root, True, left)
        return {name: node.after_a_power_cut(rng) for name, node in left if isinstance(node, FileNode)}

    def copy(self) -> "DiskStore":
        """Returns a new store whose platter has everything that a reader of this store sees now."""
        store = DiskStore()
        for name, node in self.walk():
            if isinstance(node, FileNode):
                store.put(name, bytes(node.content))
            else:
                folder, last = store.parent(name)
                _put_entry(folder, last, FolderNode(node.modified_ms))
        return store


def _put_entry(folder: FolderNode, name: str, node: Node) -> None:
    folder.entries[name] = folder.durable_entries[name] = node


def _copy_of_folder(folder: FolderNode, copies: dict[FolderNode, FolderNode]) -> FolderNode:
    """Copies the names on the platter, down to the files, which are shared. `copies` has the folders that were copied
    already."""
    copied = copies.get(folder)
    if copied is None:
        copied = copies[folder] = FolderNode(folder.modified_ms)
        copied.durable_entries = {name: _copy_of(node, copies) for name, node in folder.durable_entries.items()}
    return copied


def _copy_of(node: Node, copies: dict[FolderNode, FolderNode]) -> Node:
    return _copy_of_folder(node, copies) if isinstance(node, FolderNode) else node


def _used_bytes(folder: FolderNode) -> int:
    nodes = folder.entries.values()
    return sum(len(node.content) if isinstance(node, FileNode) else _used_bytes(node) for node in nodes)


def _walk(prefix: str, folder: FolderNode, durable: bool, found: list[tuple[str, Node]]) -> None:
    entries = folder.durable_entries if durable else folder.entries
    for name in sorted(entries):
        node = entries[name]
        found.append((prefix + name, node))
        if isinstance(node, FolderNode):
            _walk(f"{prefix}{name}/", node, durable, found)
