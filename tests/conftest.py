"""What all tests share: the hypothesis profiles, known before any property is collected."""

from tests.property.profiles import register_profiles

register_profiles()
