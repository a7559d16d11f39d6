"""Which names of topics several regular expressions match, found step by step (core)."""

from broker.coordinator.core.regex import Regex


class TopicMatching:
    """The names that each of several expressions matches, found step by step."""

    def __init__(self, texts: list[str], names: list[str]) -> None:
        self.found: dict[str, set[str]] = {text: set() for text in texts}
        self._regexes = [Regex(text) for text in texts]
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
