"""Fewer examples in CI for properties whose example is dear."""

from hypothesis import settings

_CI = settings.get_current_profile_name() == "ci"

# An example of these takes 5 to 25 ms: it draws several rollouts, a hundred choices and more, and
# assigns or writes them several times.  100 are enough: CI is derandomised, so a second hundred would
# be the same in every run, while `dev` draws new ones each time and `nightly` 5,000.
dear = settings(max_examples=100 if _CI else settings.default.max_examples)
