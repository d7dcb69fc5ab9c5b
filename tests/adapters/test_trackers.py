import sys
from types import SimpleNamespace

import numpy as np
import pytest

import accredit as ac
from accredit.adapters.trackers import finding_scalars, log_scalars, scalars
from tests.adapters.made import recorded


@pytest.fixture
def no_trackers(monkeypatch):
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_summary_is_finite_numbers_by_name():
    credit = ac.assign(recorded(), "gigpo")
    found = scalars(credit)
    assert {float} == {type(v) for v in found.values()}
    assert np.isfinite(list(found.values())).all()
    assert found["accredit/credit/mean"] == pytest.approx(credit.steps.mean())
    assert found["accredit/advantage/max"] == credit.tokens.max()
    assert found["accredit/coverage/steps"] == credit.coverage["steps"]


def test_unscored_rollouts_are_counted_by_reason():
    records = [{"id": str(i), "group": "g", "reward": r, "steps": [{}]} for i, r in enumerate([1, 0, None])]
    assert 1.0 == scalars(ac.assign(records, "grpo"))["accredit/uncounted/unscored"]


def test_a_batch_without_steps_has_a_summary_too():
    records = [{"id": i, "group": "g", "reward": 1, "steps": []} for i in "ab"]
    assert 0.0 == scalars(ac.assign(records, "grpo"))["accredit/steps"]


def test_findings_are_counted_by_code_and_severity():
    batch = ac.Batch.from_records([{"reward": 1, "steps": []}, {"reward": 1, "steps": []}])
    found = finding_scalars(batch.findings, prefix="run")
    assert 2.0 == found["run/findings/ACC102"]
    assert 4.0 == found["run/findings/warning"]
    assert 0.0 == found["run/findings/error"]


def test_wandb_gets_the_numbers_of_an_open_run(no_trackers, monkeypatch):
    seen = []
    fake = SimpleNamespace(run=object(), log=lambda values, step: seen.append((values, step)))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    assert ["wandb"] == log_scalars({"a": 1}, step=3)
    assert [({"a": 1.0}, 3)] == seen
    fake.run = None
    assert [] == log_scalars({"a": 1}, step=3)


def test_mlflow_gets_the_numbers_of_an_active_run(no_trackers, monkeypatch):
    seen = []
    fake = SimpleNamespace(active_run=object, log_metrics=lambda values, step: seen.append((values, step)))
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    assert ["mlflow"] == log_scalars({"a": 1}, step=3)
    assert [({"a": 1.0}, 3)] == seen


def test_a_tensorboard_writer_gets_one_call_a_number(no_trackers):
    seen = []
    writer = SimpleNamespace(add_scalar=lambda *call: seen.append(call))
    assert ["tensorboard"] == log_scalars({"a": 1, "b": 2}, step=3, writer=writer)
    assert [("a", 1.0, 3), ("b", 2.0, 3)] == seen


def test_no_tracker_is_imported_by_us(no_trackers):
    assert [] == log_scalars({"a": 1})
    assert not {"wandb", "mlflow"} & set(sys.modules)
