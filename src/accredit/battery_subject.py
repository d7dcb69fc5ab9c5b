"""What the battery runs on: a method with parameters, on made-up rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from accredit.battery_samples import Record, sample_records
from accredit.data import Batch, Credit, MethodCard
from accredit.engine import assign
from accredit.errors import AccreditError
from accredit.methods import get_method
from accredit.typing import Floats

__all__ = ["CheckFailed", "ParamsFor", "Subject"]

ParamsFor: TypeAlias = Mapping[str, Any] | Callable[[list[Record]], Mapping[str, Any]]


class CheckFailed(AccreditError, AssertionError):
    """A method breaks a claim of the battery."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A method under test: its name, the parameters to use, the records to use it on.

    Args:
        name: id, alias or ``"id:name=value"``.
        params: parameters, or a function from records to parameters (a method that needs one
            number a group, say).
        seed: of the made-up rollouts.
        decorate: adds to the made-up records what the method needs beyond the known fields.
    """

    name: str
    params: ParamsFor = field(default_factory=dict)
    seed: int = 0
    decorate: Callable[[list[Record]], list[Record]] = list

    @property
    def card(self) -> MethodCard:
        """The method's card."""
        return get_method(self.name)[0].card

    def records(self, sample: str = "mixed") -> list[Record]:
        """Return made-up records of a sample kind (see `accredit.battery_samples.SAMPLES`)."""
        return self.decorate(sample_records(sample, self.seed))

    def batch(self, records: list[Record]) -> Batch:
        """Return the Batch of these records."""
        return Batch.from_records(records, strict=True)

    def run(self, records: list[Record], **extra: Any) -> Credit:
        """Return the credit of these records."""
        params = self.params(records) if callable(self.params) else self.params
        return assign(self.batch(records), self.name, **{**params, **extra})

    def by_id(self, records: list[Record], **extra: Any) -> dict[str, Floats]:
        """Return each rollout's step credit by id."""
        credit = self.run(records, **extra)
        return dict(zip(credit.batch.ids, credit.by_rollout(), strict=True))
