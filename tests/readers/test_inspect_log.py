"""Inspect logs: .json and .eval, whatever packs the members."""

from __future__ import annotations

import json
import zipfile
import zlib

import pyarrow as pa
import pytest

from accredit.errors import DataError
from accredit.readers import Limits
from tests.readers.lookalikes import DATA, codes, column, look, of, rewards, steps

LOG = json.loads((DATA / "inspect/log.json").read_text())


def unzstd_zip(members: dict[str, bytes]) -> bytes:
    """Return an archive packed by zstandard, written by hand: the standard library does not know it."""
    body, table = b"", b""
    for name, content in members.items():
        packed, raw = pa.compress(content, "zstd", asbytes=True), name.encode()
        sizes = [zlib.crc32(content), len(packed), len(content)]
        fields = [20, 0, 93, 0, 33]
        common = b"".join(n.to_bytes(2, "little") for n in fields) + b"".join(
            n.to_bytes(4, "little") for n in sizes
        )
        names = len(raw).to_bytes(2, "little") + bytes(2)
        entry = b"PK\1\2" + (20).to_bytes(2, "little") + common + names + bytes(10)
        table += entry + len(body).to_bytes(4, "little") + raw
        body += b"PK\3\4" + common + names + raw + packed
    counts = len(members).to_bytes(2, "little") * 2
    end = (
        b"PK\5\6"
        + bytes(4)
        + counts
        + len(table).to_bytes(4, "little")
        + len(body).to_bytes(4, "little")
        + bytes(2)
    )
    return body + table + end


@pytest.fixture
def look_at(tmp_path):
    """Read a log that is given as a value."""

    def reading(log):
        path = tmp_path / "log.json"
        path.write_text(json.dumps(log))
        return look(path)

    return reading


def members(log=LOG, header="header.json"):
    about = {k: v for k, v in log.items() if k != "samples"}
    found = {f"samples/{s['id']}_epoch_{s['epoch']}.json": json.dumps(s).encode() for s in log["samples"]}
    return {"_journal/start.json": b"{}", **found, header: json.dumps(about).encode()}


def pack(path, found, method):
    if method == 93:
        path.write_bytes(unzstd_zip(found))
        return path
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in found.items():
            file.writestr(name, content)
    return path


def test_epochs_of_a_sample_are_a_group_and_grades_are_numbers():
    batch = look("inspect/log.json")
    assert ["run-1/1.1", "run-1/1.2", "run-1/10.1", "run-1/10.2", "run-1/2.1", "run-1/2.2"] == list(batch.ids)
    assert ("keys/1 lab/m", "keys/10 lab/m", "keys/2 lab/m") == batch.group_names
    assert [1.0, 0.0, 0.5, 0.0, None, None] == rewards(batch)


def test_several_scores_leave_the_rollout_unscored_with_its_components():
    batch = look("inspect/log.json")
    assert 1.0 == column(batch, "rewards.match_R")[5]
    assert 0.25 == column(batch, "rewards.style_R")[5]
    assert 1 == codes(batch)["ACC854"]


def test_faults_and_limits_are_told_apart():
    status = column(look("inspect/log.json"), "status_R")
    assert ["finished"] * 4 + ["failed", "truncated"] == status


def test_graders_and_examples_of_the_input_are_no_steps():
    batch = look("inspect/log.json")
    assert [2] * 6 == steps(batch)
    assert ['ls {"p":"/"}', "key.txt"] == of(batch, "run-1/1.1", "action_S")
    assert ["seeker", "seeker"] == of(batch, "run-1/1.2", "agent_S")
    assert ["key.txt", None] == of(batch, "run-1/1.2", "observation_S")


def test_intermediate_scores_are_a_signal_of_the_step_after_them():
    assert [None, 0.5] == of(look("inspect/log.json"), "run-1/1.2", "intermediate_score_S")


def test_same_situation_in_two_epochs_is_one_state_and_the_store_tells_more():
    batch = look("inspect/log.json")
    assert of(batch, "run-1/1.1", "state_S") == of(batch, "run-1/1.2", "state_S")
    assert not set(of(batch, "run-1/2.2", "state_S")) & set(of(batch, "run-1/2.1", "state_S"))
    assert 1 == codes(batch)["ACC852"]


def test_attachments_are_put_back(look_at):
    longer = {**LOG, "samples": [{**LOG["samples"][0], "attachments": {"a" * 32: "Another prompt."}}]}
    one, two = look_at(LOG), look_at(longer)
    assert of(one, "run-1/1.1", "state_S")[0] != of(two, "run-1/1.1", "state_S")[0]


def test_pooled_messages_read_like_messages_in_place(look_at):
    sample = json.loads(json.dumps(LOG["samples"][1]))
    calls = [e for e in sample["events"] if e["event"] == "model" and not e.get("role")]
    sample["events_data"] = {"messages": calls[1]["input"], "calls": []}
    for call in calls:
        call["input_refs"], call["input"] = [[0, 1], [1, len(call["input"])]], []
    pooled = look_at({**LOG, "samples": [sample]})
    for name in ("state_S", "action_S", "observation_S"):
        assert of(look("inspect/log.json"), "run-1/1.2", name) == of(pooled, "run-1/1.2", name)


def test_compacted_conversations_take_their_steps_from_the_events(look_at):
    sample = json.loads(json.dumps(LOG["samples"][1]))
    sample["messages"] = sample["messages"][-1:]
    sample["events"].insert(4, {"event": "compaction", "type": "summary"})
    assert [2] == steps(look_at({**LOG, "samples": [sample]}))


def test_a_log_that_was_stopped_says_so():
    assert 1 == codes(look("inspect/log.json"))["ACC857"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93])
def test_archive_equals_the_document_whatever_packs_it(tmp_path, method):
    batch = look(pack(tmp_path / "log.eval", members(), method))
    whole = look("inspect/log.json")
    order = [whole.position(name) for name in batch.ids]
    assert ["run-1/1.1", "run-1/1.2", "run-1/2.1", "run-1/2.2", "run-1/10.1", "run-1/10.2"] == list(batch.ids)
    assert list(whole.take(order).records()) == list(batch.records())


def test_archive_without_a_header_uses_its_journal(tmp_path):
    found = {k: v for k, v in members(header="_journal/start.json").items() if k != "header.json"}
    assert 6 == len(look(pack(tmp_path / "log.eval", found, zipfile.ZIP_DEFLATED)))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93])
def test_damaged_member_is_excluded_with_its_place_and_the_others_are_used(tmp_path, method):
    found = members()
    found["samples/1_epoch_1.json"] = b'{"id": 1, "epoch": 1, ' + b'"x": 0, ' * 999
    raw = bytearray(pack(tmp_path / "log.eval", found, method).read_bytes())
    at = raw.index(b"samples/1_epoch_1.json") + 60
    raw[at] ^= 0xFF
    (tmp_path / "log.eval").write_bytes(raw)
    batch = look(tmp_path / "log.eval")
    assert 5 == len(batch)
    assert ["log.eval member samples/1_epoch_1.json"] == [e.where for e in batch.excluded]
    assert {"ACC909"} == {e.code for e in batch.excluded}


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, 93])
def test_bomb_is_stopped_at_the_limit_and_not_unpacked(tmp_path, method):
    found = members()
    found["samples/1_epoch_1.json"] = b" " * (32 << 20)
    path = pack(tmp_path / "log.eval", found, method)
    batch = look(path, limits=Limits(line_bytes=4 << 20))
    assert 5 == len(batch)
    assert ["ACC908"] == [e.code for e in batch.excluded]
    batch = look(path, limits=Limits(ratio=50, ratio_from=1 << 20))
    assert ["ACC908"] == [e.code for e in batch.excluded]


def test_members_that_share_their_bytes_are_refused(tmp_path):
    path = pack(tmp_path / "log.eval", {f"samples/{i}_epoch_1.json": bytes(9999) for i in range(3)}, 0)
    raw = path.read_bytes()
    path.write_bytes(raw[: 9999 + 60] + raw[raw.index(b"PK\1\2") :])
    with pytest.raises(DataError, match=r"ACC909.*(share their bytes|not a whole ZIP)"):
        look(path)


def test_an_encrypted_an_unknown_and_a_doubled_member_are_told(tmp_path):
    path = pack(tmp_path / "log.eval", members(), zipfile.ZIP_STORED)
    raw = path.read_bytes()
    at = raw.rindex(b"PK\1\2", 0, raw.rindex(b"samples/1_epoch_1.json"))
    for offset, value, word in ((8, 1, "encrypted"), (10, 12, "method 12")):
        path.write_bytes(raw[: at + offset] + bytes([value]) + raw[at + offset + 1 :])
        batch = look(path)
        assert 5 == len(batch)
        assert word in batch.excluded[0].reason
    path.write_bytes(raw.replace(b"samples/1_epoch_2.json", b"samples/1_epoch_1.json"))
    with pytest.raises(DataError, match="names a member twice"):
        look(path)


def test_shared_messages_cannot_be_multiplied_without_end(look_at):
    sample = json.loads(json.dumps(LOG["samples"][1]))
    call = next(e for e in sample["events"] if e["event"] == "model")
    sample["events_data"] = {"messages": call["input"] * 500, "calls": []}
    call["input_refs"], call["input"] = [[0, 1000]] * 5000, []
    with pytest.raises(DataError, match="were shown messages"):
        look_at({**LOG, "samples": [sample]})
