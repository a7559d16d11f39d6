"""How many examples a property gets: a few fixed ones, or a hundred times as many that differ in every run.

`pytest --hypothesis-profile=exhaustive` selects the latter; tests/conftest.py registers both profiles.
"""

from hypothesis import HealthCheck, settings

FAST = "fast"
EXHAUSTIVE = "exhaustive"
EXHAUSTIVE_FACTOR = 100


def register_profiles() -> None:
    """Registers both profiles and makes the fast one the default."""
    settings.register_profile(FAST, derandomize=True, database=None, deadline=None)
    settings.register_profile(EXHAUSTIVE, derandomize=False, deadline=None)
    settings.load_profile(FAST)


def examples(count: int) -> settings:
    """Returns the settings of one property. `count` is the number of examples in the fast profile."""
    is_exhaustive = settings.get_current_profile_name() == EXHAUSTIVE
    return settings(
        max_examples=count * EXHAUSTIVE_FACTOR if is_exhaustive else count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
