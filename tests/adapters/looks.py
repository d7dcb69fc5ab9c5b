"""Look-alikes of trainers that are not on PyPI or do not install on a CPU: their field names, no more.

Names are those of the sources cited in each adapter.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.adapters.made import Tensors, tensors_of


class DataProto(SimpleNamespace):
    """ROLL's and SkyRL's container: tensors, objects, metadata; `data["name"]` gives a tensor."""

    def __getitem__(self, name: str) -> Any:
        return self.batch[name]

    def keys(self) -> Any:
        return self.batch.keys()


def rllm_groups(records: list[dict[str, Any]]) -> list[SimpleNamespace]:
    """`TrajectoryGroup(group_id, trajectories)` of `Trajectory(uid, name, steps, reward)` of `Step`."""
    groups: dict[str, SimpleNamespace] = {}
    for record in records:
        group = groups.setdefault(
            record["group"], SimpleNamespace(group_id=f"{record['group']}:solver", trajectories=[])
        )
        steps = [
            SimpleNamespace(
                prompt_ids=list(step["context_tokens"]),
                response_ids=list(step["tokens"]),
                logprobs=[-0.5] * len(step["tokens"]),
                observation=step["state"],
                action="go",
                reward=0.0,
                advantage=None,
            )
            for step in record["steps"]
        ]
        group.trajectories.append(
            SimpleNamespace(uid=record["id"], name="solver", steps=steps, reward=record["reward"])
        )
    return list(groups.values())


def slime_samples(t: Tensors) -> list[SimpleNamespace]:
    """`Sample`: tokens hold prompt and response, masks and log-probabilities the response."""
    samples = []
    for b in range(len(t.tokens)):
        n = int(np.flatnonzero(t.mask[b]).max()) + 1 if t.mask[b].any() else 0
        samples.append(
            SimpleNamespace(
                group_index=t.group[b],
                index=b,
                rollout_id=t.rollout[b],
                tokens=[1, 2, 3, *t.tokens[b, :n].tolist()],
                response_length=n,
                reward=float(t.rewards[b]),
                loss_mask=t.mask[b, :n].tolist(),
                rollout_log_probs=[-0.5] * n,
                status="completed",
                metadata={},
            )
        )
    return samples


def openrlhf_experiences(t: Tensors, prompts: dict[str, str]) -> list[SimpleNamespace]:
    """Two `Experience` batches of different width."""
    half = len(t.tokens) // 2
    found = []
    for rows, width in ((slice(0, half), t.mask.shape[1]), (slice(half, None), t.mask.shape[1] - 2)):
        found.append(
            SimpleNamespace(
                sequences=np.pad(t.tokens[rows, :width], ((0, 0), (3, 0))),
                action_mask=t.mask[rows, :width],
                action_log_probs=np.full(t.mask[rows, :width].shape, -0.5),
                values=None,
                rewards=t.rewards[rows],
                prompts=[prompts[g] for g in t.group[rows]],
            )
        )
    return found


def message_logs(
    records: list[dict[str, Any]], prompt: list[int]
) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """NeMo-RL's `message_log` of each row, its mask over prompt and answers, and the token ids."""
    t = tensors_of(records)
    logs = []
    for record in records:
        log = [{"role": "user", "token_ids": prompt}]
        for i, step in enumerate(record["steps"]):
            if i:
                log.append({"role": "environment", "token_ids": step["context_tokens"]})
            log.append({"role": "assistant", "token_ids": step["tokens"]})
        logs.append(log)
    pad = ((0, 0), (len(prompt), 0))
    return logs, np.pad(t.mask, pad), np.pad(t.tokens, pad)


def roll_batch(records: list[dict[str, Any]]) -> DataProto:
    """A row a step, as ROLL's step environment manager gives them; masks begin one position late."""
    rows = [(r, t, step) for r in records for t, step in enumerate(r["steps"])]
    mask = np.zeros((len(rows), 8), np.int64)
    for b, (_, _, step) in enumerate(rows):
        mask[b, 2 : 2 + len(step["tokens"])] = 1
    return DataProto(
        batch={"response_mask": mask},
        non_tensor_batch={
            "traj_group_id": [r["group"] for r, _, _ in rows],
            "traj_id": [r["id"] for r, _, _ in rows],
            "state_hash": [step["state"] for _, _, step in rows],
            "step": [t + 1 for _, t, _ in rows],
            "step_scores": [0.0 for _ in rows],
            "episode_scores": [r["reward"] for r, _, _ in rows],
        },
    )
