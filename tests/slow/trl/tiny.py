"""A tiny random model, a tokenizer of words and real trainers of TRL, all made on the spot."""

from __future__ import annotations

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from accredit.adapters.trl import CreditMixin

torch.set_num_threads(1)  # matrices this small gain nothing from threads that wait for each other

PAD, EOS, FIRST = 0, 1, 2
WORDS = 10


class Trainer(CreditMixin, GRPOTrainer):
    pass


def tokenizer():
    words = {"<pad>": PAD, "<eos>": EOS} | {f"w{i}": FIRST + i for i in range(WORDS)}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")


def model(seed=0):
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=FIRST + WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=EOS,
    )
    return Qwen2ForCausalLM(config)


def share_of_w5(completion_ids, **_):
    """The reward that a policy can learn: the share of the word w5 among its tokens."""
    return [ids.count(FIRST + 5) / max(1, len(ids)) for ids in completion_ids]


def noise(completion_ids, **_):
    """A reward of the ids alone that hardly two completions share."""
    return [float(np.random.default_rng(sum(ids) * 97 + len(ids)).random()) for ids in completion_ids]


def config(folder, **changes):
    given = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 6,
        "max_steps": 2,
        "learning_rate": 1e-2,
    }
    return GRPOConfig(**(given | changes))


def trainer(folder, credit="grpo", *, kind=Trainer, options=None, rewards=share_of_w5, more=None, **changes):
    """A trainer over two prompts, whose groups are rows 0 to 3 and 4 to 7."""
    data = Dataset.from_dict({"prompt": ["w1 w2", "w3"] * 16})
    given = {"credit": credit, "credit_options": options} if issubclass(kind, CreditMixin) else {}
    made = {
        "model": model(),
        "reward_funcs": rewards,
        "args": config(folder, **changes),
        "train_dataset": data,
        "processing_class": tokenizer(),
    }
    return kind(**(made | given | (more or {})))


def two_turns(prompts, trainer):
    """Two turns of two tokens, a token of the world between; turns, states and rewards are told."""
    ids, masks, records = [], [], []
    for b in range(len(prompts)):
        first = [FIRST + b % 2, FIRST + 2]
        second = [FIRST + 3 + b % 3, EOS]
        world = FIRST + 9
        ids.append([*first, world, *second])
        masks.append([1, 1, 0, 1, 1])
        steps = [
            {"state": "door", "action": f"a{b % 2}", "tokens": first, "reward": float(b % 2)},
            {
                "state": f"room {b % 2}",
                "action": f"b{b % 3}",
                "tokens": second,
                "context_tokens": [world],
                "reward": float(b % 4 == 3),
            },
        ]
        records.append({"steps": steps, "status": "finished"})
    return {
        "prompt_ids": [[FIRST]] * len(prompts),
        "completion_ids": ids,
        "logprobs": [[-1.0] * 5 for _ in ids],
        "env_mask": masks,
        "accredit": records,
    }


def sum_of_steps(accredit, **_):
    """A reward function sees the records, like every extra field."""
    return [sum(step["reward"] for step in record["steps"]) for record in accredit]
