"""What verl loads by itself (entry-point group ``verl.plugins``), in the driver and in every worker.

Importing it costs nothing: `accredit.adapters.verl` is imported when verl's own advantage code is.
"""

from __future__ import annotations

from accredit.adapters.arrivals import when_imported

__all__: list[str] = []

_HOME = "accredit.adapters.verl"

when_imported("verl.trainer.ppo.core_algos", f"{_HOME}:register")
for _trainer in ("verl.trainer.ppo.ray_trainer", "verl.experimental.separation.ray_trainer"):
    when_imported(_trainer, f"{_HOME}:wrap")
when_imported("verl.trainer.ppo.v1.utils", f"{_HOME}:wrap_sessions")
when_imported("verl.trainer.ppo.v1.trainer_base", f"{_HOME}:wrap_v1")
