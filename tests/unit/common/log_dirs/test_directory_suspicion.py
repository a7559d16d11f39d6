"""When a directory is suspected of hanging, and when it is trusted again."""

from common.ids import DirectoryId, Uuid
from common.log_dirs.directory_suspicion import Changes, DirectorySuspicion
from common.time_units import NS_PER_MS, NS_PER_S

A, B, C = (DirectoryId(Uuid(letter * 16)) for letter in (b"a", b"b", b"c"))
NOTHING = Changes([], [])


def suspicion() -> DirectorySuspicion:
    return DirectorySuspicion(NS_PER_S)


def look(known: DirectorySuspicion, now_ns: int, silence_ns: dict[DirectoryId, int], **awaited_ns: int) -> Changes:
    """Looks at the directories. `awaited_ns` says by the letter of a directory how long a sync has been awaited in it."""
    letters = {A: "a", B: "b", C: "c"}
    return known.look(now_ns, silence_ns, {each: awaited_ns.get(letters[each], 0) for each in silence_ns})


def test_a_directory_is_suspected_while_it_is_silent_and_for_a_while_afterwards() -> None:
    """It is suspected once its silence has lasted long enough, and trusted when it has not been silent for as long again.
    Another directory is not affected."""
    known = suspicion()
    assert known.look_interval_ns == 100 * NS_PER_MS
    assert look(known, 0, {A: 999 * NS_PER_MS, B: 0}) == NOTHING
    assert look(known, 250 * NS_PER_MS, {A: NS_PER_S, B: 0}) == Changes([A], [])
    assert look(known, 500 * NS_PER_MS, {A: 2 * NS_PER_S, B: 0}) == NOTHING
    assert known.silent == [A]
    assert look(known, 750 * NS_PER_MS, {A: 5, B: 0}) == NOTHING
    assert [*known.suspected] == [A]
    assert known.silent == []
    assert look(known, 1_250 * NS_PER_MS, {A: 999 * NS_PER_MS, B: 0}) == NOTHING
    assert look(known, 1_500 * NS_PER_MS, {A: 0, B: 0}) == Changes([], [A])
    assert [*known.suspected] == []


def test_a_directory_that_is_silent_again_stays_suspected() -> None:
    known = suspicion()
    look(known, 0, {A: NS_PER_S})
    look(known, 250 * NS_PER_MS, {A: 0})
    assert look(known, 750 * NS_PER_MS, {A: NS_PER_S}) == NOTHING
    assert look(known, 1_500 * NS_PER_MS, {A: 0}) == NOTHING
    assert look(known, 1_750 * NS_PER_MS, {A: 0}) == Changes([], [A])


def test_a_trusted_directory_is_unsteady_for_a_while() -> None:
    known = suspicion()
    look(known, 0, {A: NS_PER_S, B: 0})
    assert look(known, 1_000 * NS_PER_MS, {A: 0, B: 0}) == Changes([], [A])
    look(known, 3_750 * NS_PER_MS, {A: 0, B: 0})
    assert [*known.unsteady] == [A]
    look(known, 4_000 * NS_PER_MS, {A: 0, B: 0})
    assert [*known.unsteady] == []


def test_the_others_are_tried_while_a_directory_is_silent() -> None:
    """Nothing waits for B, so nothing is known of its disk. C is about to be known."""
    known = suspicion()
    look(known, 0, {A: 99 * NS_PER_MS, B: 0, C: 0})
    assert known.to_try == []
    look(known, 100 * NS_PER_MS, {A: 199 * NS_PER_MS, B: 0, C: 1})
    assert known.to_try == [B]
    look(known, 60 * NS_PER_S, {A: 60 * NS_PER_S, B: 0, C: 0})
    assert known.to_try == [], "the process was stopped"
    look(known, 60 * NS_PER_S + known.look_interval_ns, {A: 0, B: 0, C: 0})
    assert known.to_try == []


def test_an_offline_directory_is_no_longer_suspected() -> None:
    """Its replicas are gone, so nobody waits for it."""
    known = suspicion()
    look(known, 0, {A: NS_PER_S})
    assert look(known, 1, {}) == Changes([], [A])
    assert [*known.unsteady] == []


def test_a_stopped_process_suspects_nobody() -> None:
    """After a pause of the whole process, every operation looks old. The disks get until the next look to finish them."""
    known = suspicion()
    look(known, 0, {A: 0})
    assert look(known, 60 * NS_PER_S, {A: 60 * NS_PER_S}) == NOTHING
    assert look(known, 60 * NS_PER_S + known.look_interval_ns, {A: 60 * NS_PER_S}) == Changes([A], [])


def test_a_directory_in_which_clients_wait_long_for_a_sync_is_tried() -> None:
    """A read is not long under way before it makes the directory silent, and then no other is begun."""
    known = suspicion()
    look(known, 0, {A: 0, B: 0}, a=499 * NS_PER_MS)
    assert known.to_try == []
    look(known, 100 * NS_PER_MS, {A: 0, B: 0}, a=500 * NS_PER_MS)
    assert known.to_try == [A]
    look(known, 200 * NS_PER_MS, {A: 50 * NS_PER_MS, B: 0}, a=600 * NS_PER_MS)
    assert known.to_try == []
    look(known, 60 * NS_PER_S, {A: 0, B: 0}, a=60 * NS_PER_S)
    assert known.to_try == [], "the process was stopped"
