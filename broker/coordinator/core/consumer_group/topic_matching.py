"""Which names of topics several regular expressions match, found step by step (core)."""

from broker.coordinator.core.regex import InvalidRegex, Regex


class TopicMatching:
    """The names that each of several expressions matches, found step by step."""

    def __init__(self, texts: list[str], names: list[str]) -> None:
        self.found: dict[str, set[str]] = {text: set() for text in texts}
        self._regexes = [regex for text in texts if (regex := _known(text)) is not None]
        self._names = iter(names)

    def advance(self, *, names_max: int, work_max: int) -> bool:
        """Goes on until so many names or so much work are done. Returns whether there may be more."""
        work_before = sum(regex.work for regex in self._regexes)
        for _ in range(names_max):
            name = next(self._names, None)
            if name is None:
                return False
            for regex in self._regexes:
                if regex.matches(name):
                    self.found[regex.text].add(name)
            if sum(regex.work for regex in self._regexes) - work_before > work_max:
                break
        return True


def _known(text: str) -> Regex | None:
    """Returns None for an expression that finds nothing here. A member's expression is checked when it subscribes, but the
    group may come from an Apache Kafka broker, which takes some that are not known here."""
    try:
        return Regex(text)
    except InvalidRegex:
        return None
