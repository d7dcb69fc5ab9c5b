"""Rollouts that come as several records."""

from accredit.data import Batch


def test_where_the_outcome_is_is_decided_on_whole_rollouts():
    """Joining rows used to decide it on the single records, whose step rewards never add up."""
    records = [
        {"id": "a", "group": "g", "reward": 1.0, "row": row, "steps": [{"reward": paid}]}
        for row, paid in enumerate([0.25, 0.75])
    ]
    assert Batch.from_records(records).outcome_in_steps
