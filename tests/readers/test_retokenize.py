"""Token ids made from text: only on demand, of the right piece, marked, and refused where they mislead."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import accredit as ac
from accredit.errors import BackendError, DataError
from accredit.readers import convert
from accredit.readers.retokenize import retokenized

CORPUS = ["having a look", "the key is here", "open the door", "havinghaving", "look look", "é日本😀"] * 20


def _byte_level(trim=True, crossing=False):
    """A byte-level BPE as GPT-2's; ``crossing`` merges over spaces and pieces too."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not crossing)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


TRIMMED, CROSSING = _byte_level(), _byte_level(trim=False, crossing=True)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "tokenizer.json"
    TRIMMED.save(str(file))
    return file


def _chat(*turns, id="r0", reward=1.0, group="g"):
    """A row of chat messages: user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"id": id, "group": group, "reward": reward, "messages": messages}


def _write(tmp_path, *rows):
    file = tmp_path / "chat.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def _steps(batch):
    return [step for record in batch.records() for step in record["steps"]]


# -- never unless asked -------------------------------------------------------------------------------


def test_ids_are_not_made_unless_asked(tmp_path, path):
    file = _write(tmp_path, _chat("find", "having a look", "no", "the key"))
    assert 0 == ac.read(file).n_tokens
    assert 0 < ac.read(file, retokenize=path).n_tokens


def test_the_ids_are_those_of_the_tokenizer(tmp_path, path):
    batch = ac.read(_write(tmp_path, _chat("find", "having a look", "no", "the key")), retokenize=str(path))
    first, second = _steps(batch)
    assert "having a look" == TRIMMED.decode(first["tokens"])
    assert ("no", "the key") == (TRIMMED.decode(second["context_tokens"]), TRIMMED.decode(second["tokens"]))


def test_calls_are_part_of_what_a_turn_said(path):
    step = {"text": "look", "action": 'ls {"p":"/"}', "observation": "key"}
    [found] = _steps(ac.read([{"id": "a", "group": "g", "reward": 1, "steps": [step]}], retokenize=path))
    assert 'look\nls {"p":"/"}' == TRIMMED.decode(found["tokens"])


def test_rollouts_with_tokens_of_their_own_stay_as_they_are(path):
    own = {
        "id": "own",
        "group": "g",
        "reward": 1,
        "steps": [{"text": "the key", "tokens": [7, 9], "logprobs": [-1, -2]}],
    }
    counted = {"id": "counted", "group": "g", "reward": 1, "steps": [{"text": "the key", "n_tokens": 3}]}
    bare = {"id": "bare", "group": "g", "reward": 0, "steps": [{"text": "the key"}]}
    batch = ac.read([own, counted, bare], retokenize=path)
    found = {r["id"]: r for r in batch.records()}
    assert own["steps"][0].items() <= found["own"]["steps"][0].items()
    assert 3 == found["counted"]["steps"][0]["n_tokens"]
    assert found["bare"]["steps"][0]["tokens"]
    assert [False, False, True] == batch.column("tokens_inferred_R").mask(3).tolist()


# -- which side owns a token --------------------------------------------------------------------------


def _owner_slowly(pieces, encoding):
    """Character by character: the piece of each token's first character."""
    of_character = [i for i, piece in enumerate(pieces) for _ in piece]
    found = [[] for _ in pieces]
    for id, (start, _) in zip(encoding.ids, encoding.offsets, strict=True):
        found[of_character[start]].append(id)
    return found


TEXT = st.text(st.sampled_from("having look the ké日😀"), max_size=12)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
@settings(max_examples=80)
def test_a_token_belongs_to_the_piece_of_its_first_character(turns):
    steps = [{"text": said, "observation": seen} for said, seen in turns]
    record = {"id": "a", "group": "g", "reward": 1, "steps": steps}
    batch = retokenized(ac.Batch.from_records([record]), CROSSING.encode)
    pieces = [piece for turn in turns for piece in turn]
    expected = _owner_slowly(pieces, CROSSING.encode("".join(pieces)))
    found = _steps(batch)
    assert expected[::2] == [step.get("tokens", []) for step in found]
    assert [[], *expected[1:-1:2]] == [step.get("context_tokens", []) for step in found]


def test_a_token_over_a_border_is_the_earlier_sides():
    encoding = CROSSING.encode("having")
    assert 1 == len(encoding.ids)  # one token for both pieces
    record = {
        "id": "a",
        "group": "g",
        "reward": 1,
        "steps": [{"text": "hav", "observation": "ing"}, {"text": "a"}],
    }
    first, second = _steps(retokenized(ac.Batch.from_records([record]), CROSSING.encode))
    assert encoding.ids == first["tokens"]
    assert [] == second.get("context_tokens", [])


def test_a_leading_space_is_the_tokens_first_character(path):
    """GPT-2's offsets leave the space out, which gave its token to the piece after it."""
    record = {
        "id": "a",
        "group": "g",
        "reward": 1,
        "steps": [{"text": "the ", "observation": "key"}, {"text": "x"}],
    }
    assert (4, 7) == TRIMMED.encode("the key").offsets[-1]  # " key", trimmed
    first, second = _steps(ac.read([record], retokenize=path))
    assert "the key" == TRIMMED.decode(first["tokens"])
    assert [] == second.get("context_tokens", [])


# -- marks ------------------------------------------------------------------------------------------


def test_the_batch_is_marked_by_column_provenance_and_finding(tmp_path, path):
    batch = ac.read(_write(tmp_path, _chat("find", "look")), retokenize=path)
    assert [1.0] == batch.tokens_inferred_R.tolist()
    told = batch.provenance["tokens_inferred"]
    assert ("tokenizer.json", 1, 64) == (told["tokenizer"], told["rollouts"], len(told["sha256"]))
    assert ["ACC864"] == [f.code for f in batch.findings if f.code == "ACC864"]


def test_the_mark_goes_through_files_and_slices(tmp_path, path):
    source = _write(tmp_path, _chat("find", "look"), _chat("find", "open", id="r1", reward=0.0))
    for name in ("made.jsonl", "made.parquet"):
        convert(source, tmp_path / name, retokenize=path)
        again = ac.read(tmp_path / name)
        assert [1.0, 1.0] == again.tokens_inferred_R.tolist()
        assert "ACC864" in {f.code for f in again.findings}
    assert again.take([1]).has("tokens_inferred_R")


def test_everything_else_is_as_it_was(tmp_path, path):
    file = _write(tmp_path, _chat("find", "look", "no", "open"), {"id": "bad", "messages": 7})
    plain, made = ac.read(file), ac.read(file, retokenize=path)
    assert plain.excluded == made.excluded
    assert plain.outcome_in_steps == made.outcome_in_steps
    ours = {"tokens", "context_tokens", "tokens_inferred"}
    for before, after in zip(plain.records(), made.records(), strict=True):
        steps = [{k: v for k, v in s.items() if k not in ours} for s in after["steps"]]
        assert before == {**{k: v for k, v in after.items() if k not in ours}, "steps": steps}
    assert {f.code for f in plain.findings} < {f.code for f in made.findings}


def _rescored(batch, provenance=None):
    ones = np.full(batch.n_tokens, -1.0)
    batch = batch.with_column("logprobs", ones, provenance)
    return batch.with_column("logprobs_hindsight", ones * 0.5, {"probe": "model"})


def test_methods_that_compare_the_samplers_log_probabilities_refuse(path):
    rows = [
        {"id": f"r{i}", "group": "g", "reward": i, "steps": [{"state": "s", "text": "look"}]} for i in (0, 1)
    ]
    batch = ac.read(rows, retokenize=path)
    assert ac.assign(batch, "grpo").tokens.any()
    with pytest.raises(DataError, match="ACC404"):
        ac.assign(_rescored(batch), "relace")
    entropies = _rescored(batch).with_column("entropies", np.ones(batch.n_tokens))
    with pytest.raises(DataError, match="ACC404"):
        ac.assign(entropies, "hapo", base="relace")  # the method under a reweighter, too
    assert ac.assign(_rescored(batch, {"probe": "model"}), "relace").steps.size == 2  # one scorer, twice


# -- what cannot be used ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retokenize", "says"),
    [
        (lambda text: [1, 2], "no ids with character offsets"),
        (lambda text: ([1], [(0, 1), (1, 2)]), "1 ids and 2 offsets"),
        (lambda text: ([1, 2], [(2, 3), (0, 1)]), "do not run through the text"),
        (lambda text: ([1], [(99, 100)]), "do not run through the text"),
        ("nowhere.json", "cannot be read"),
        (__file__, "cannot be read"),
    ],
)
def test_what_is_no_tokenizer_is_refused(retokenize, says):
    with pytest.raises(DataError, match=says):
        ac.read([{"id": "a", "group": "g", "reward": 1, "steps": [{"text": "look"}]}], retokenize=retokenize)


def test_json_that_is_no_tokenizer_is_refused(tmp_path):
    file = tmp_path / "config.json"
    file.write_text("{}")
    with pytest.raises(DataError, match="ACC865"):
        ac.read([{"id": "a", "reward": 1, "steps": [{"text": "look"}]}], retokenize=file)


def test_the_missing_package_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(BackendError, match=r"accredit\[tokens\]"):
        ac.read([{"id": "a", "reward": 1, "steps": [{"text": "look"}]}], retokenize=path)


def test_what_transformers_and_plain_lists_return_is_taken():
    record = {"id": "a", "group": "g", "reward": 1, "steps": [{"text": "ab"}]}
    for answer in (([5, 6], [(0, 1), (1, 2)]), {"input_ids": [5, 6], "offset_mapping": [(0, 1), (1, 2)]}):
        assert [5, 6] == ac.read([record], retokenize=lambda text, a=answer: a).token_T.tolist()


def test_a_space_at_the_end_may_lie_behind_the_text():
    record = {"id": "a", "group": "g", "reward": 1, "steps": [{"observation": "a "}, {"text": ""}]}
    assert (2, 2) == TRIMMED.encode("a ").offsets[-1]
    batch = retokenized(ac.Batch.from_records([record]), TRIMMED.encode)
    assert TRIMMED.encode("a ").ids == _steps(batch)[1]["context_tokens"]


def test_lone_surrogates_and_empty_texts_do_not_stop_it(path):
    steps = [{"text": "a\ud800b"}, {"observation": "x"}, {}]
    batch = ac.read(
        [{"id": "a", "reward": 1, "steps": steps}, {"id": "b", "reward": 1, "steps": []}], retokenize=path
    )
    assert batch.n_tokens > 0
    assert [0, 0] == np.diff(batch.token_start_S1)[1:].tolist()


def test_the_package_is_not_loaded_before_it_is_needed():
    code = "import sys, accredit as ac; ac.read; print('tokenizers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False" == done.stdout.strip()
