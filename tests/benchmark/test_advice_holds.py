"""The advice against the benchmark: in every family, with all signals and with none."""

from __future__ import annotations

import pytest

from accredit.advice import _evidence, advise
from accredit.benchmark.cells import scorer_of
from accredit.benchmark.plan import PLAIN, SCALES, TASKS, task_of
from accredit.worlds import sample

GROUPS = SCALES["smoke"].groups


def _batches(family):
    yield scorer_of(family, PLAIN, 0, GROUPS).batch
    yield sample(task_of(family, 0), groups=GROUPS, group_size=8, success_rate=0.5).batch


@pytest.mark.parametrize("own", ["with what it knows of the family", "from other families alone"])
@pytest.mark.parametrize("family", TASKS)
def test_the_first_choice_is_never_worse_than_grpo_nor_grpo_where_something_beats_it(smoke, family, own):
    board = smoke[0].board(family)
    alone = own.startswith("from")
    evidence = [p for p in _evidence() if not alone or p["family"] != family]
    for batch in _batches(family):
        advice = advise(batch, evidence=evidence)
        verdicts = {m.method: board.row(m.method).verdict for m in advice.methods if m.runs}
        assert verdicts[advice.first.method] != "worse"
        if advice.first.method == "grpo":
            assert "better" not in verdicts.values()
