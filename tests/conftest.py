"""Hypothesis profiles: `dev` by default, `ci` when CI is set, HYPOTHESIS_PROFILE overrides both."""

import os

from hypothesis import HealthCheck, settings

# A slow, contested core is no bug of the code under test.
_SLOW_MACHINE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=50, **_SLOW_MACHINE)
settings.register_profile("ci", max_examples=200, derandomize=True, **_SLOW_MACHINE)
settings.register_profile("nightly", max_examples=5000, **_SLOW_MACHINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))
