"""verl 0.9: every method as ``algorithm.adv_estimator=accredit/<id>``.

Parameters stand under ``algorithm.accredit`` (``+algorithm.accredit.gamma=0.95`` on the command
line): those of the method, and those of `accredit.assign` (``key``, ``spread``, ``compat`` …).
``algorithm.gamma`` and ``algorithm.lam`` count where they differ from verl's default 1.0 and
``algorithm.accredit`` does not say otherwise.

A registered estimator sees rewards, mask and uid only.  So `compute_advantage` is wrapped, in the
legacy trainer and in V1: methods also get the token ids, log-probabilities, entropies, values,
sessions, and what the agent loop puts into ``extra_fields["accredit"]``: a native record of the row
(``{"steps": [{"state": …, "tokens": […]}, …], "status": …}``).

Source: verl 0.9.1 ``core_algos.register_adv_est``, ``ray_trainer.compute_advantage``,
``v1.utils.compute_advantage_for_multi_trajectories``, ``v1.trainer_base.PPOTrainer``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import accredit as ac
from accredit.adapters.verl_batch import (
    ENTROPY,
    HERE,
    LAST,
    PREFIX,
    RowFacts,
    check_version,
    credit_rows,
    forget,
)

__all__ = ["PREFIX", "check_version", "credit_rows", "forget", "register", "wrap", "wrap_sessions", "wrap_v1"]


def register(core_algos: Any) -> None:
    """Register every method and alias of the catalogue in verl's table of estimators.

    Args:
        core_algos: the module ``verl.trainer.ppo.core_algos``.
    """
    for card in ac.catalog():
        if card.yields != "table":
            for name in (card.id, *card.aliases):
                if PREFIX + name not in core_algos.ADV_ESTIMATOR_REGISTRY:
                    core_algos.register_adv_est(PREFIX + name)(functools.partial(_estimator, name))


def _estimator(
    method: str,
    token_level_rewards: Any,
    response_mask: Any,
    config: Any = None,
    index: Any = None,
    non_tensor_batch: Mapping[str, Any] | None = None,
    batch: Mapping[str, Any] | None = None,
    **_: Any,
) -> tuple[Any, Any]:
    """What verl's registry calls where `compute_advantage` is not wrapped: fewer signals reach it."""
    tensors = dict(batch or {}) | {
        "token_level_rewards": token_level_rewards,
        "response_mask": response_mask,
    }
    extras = dict(non_tensor_batch or {})
    if index is not None:
        extras["uid"] = index
    found = credit_rows(method, tensors, extras, config)
    return found.advantages, found.returns


def wrap(trainer: Any) -> None:
    """Wrap `compute_advantage` of a module of verl's legacy trainers, and what hides entropies there.

    Args:
        trainer: the module ``verl.trainer.ppo.ray_trainer``, or one that imports the name from it.
    """
    trainer.compute_advantage = _wrapped(trainer.compute_advantage)
    legacy = getattr(trainer, "RayPPOTrainer", None)
    if legacy is not None and "_compute_old_log_prob" in vars(legacy):
        legacy._compute_old_log_prob = _with_entropies(legacy._compute_old_log_prob)


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    if getattr(original, "accredit", False):
        return original

    signature = inspect.signature(original)

    @functools.wraps(original)
    def compute_advantage(data: Any, adv_estimator: Any, *args: Any, **kwargs: Any) -> Any:
        method = _ours(adv_estimator)
        if method is None:
            return original(data, adv_estimator, *args, **kwargs)
        given = signature.bind(data, adv_estimator, *args, **kwargs).arguments
        return _compute(method, data, given.get("config"), given.get("num_repeat", 1))

    compute_advantage.accredit = True  # type: ignore[attr-defined]
    return compute_advantage


def _ours(adv_estimator: Any) -> str | None:
    if isinstance(adv_estimator, str) and adv_estimator.startswith(PREFIX):
        return adv_estimator.removeprefix(PREFIX)
    return None


def _compute(method: str, data: Any, config: Any, per_group: int) -> Any:
    if "response_mask" not in data.batch.keys():  # noqa: SIM118 - a TensorDict
        from verl.trainer.ppo.ray_trainer import compute_response_mask

        data.batch["response_mask"] = compute_response_mask(data)
    tensors = {name: data.batch[name] for name in data.batch.keys()}  # noqa: SIM118
    found = credit_rows(method, tensors, data.non_tensor_batch, config, per_group)
    data.batch["advantages"] = found.advantages
    data.batch["returns"] = found.returns
    data.meta_info["accredit"] = LAST.get()
    return data


def _with_entropies(original: Callable[..., Any]) -> Callable[..., Any]:
    if getattr(original, "accredit", False):
        return original

    @functools.wraps(original)
    def compute_old_log_prob(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        if _ours(self.config.algorithm.adv_estimator) is not None:
            found = output[0] if isinstance(output, tuple) else output
            found.batch[ENTROPY] = found.batch["entropys"]  # the trainer drops its own before advantages
        return output

    compute_old_log_prob.accredit = True  # type: ignore[attr-defined]
    return compute_old_log_prob


def wrap_sessions(utils: Any) -> None:
    """Hand V1's row keys to our methods: they say which rows are one rollout.

    Args:
        utils: the module ``verl.trainer.ppo.v1.utils``.
    """
    utils.compute_advantage = _wrapped(utils.compute_advantage)
    original = utils.compute_advantage_for_multi_trajectories

    @functools.wraps(original)
    def for_multi_trajectories(data: Any, batch_keys: Any, *args: Any, **kwargs: Any) -> Any:
        token = HERE.set(replace(HERE.get(), keys=list(batch_keys)))
        try:
            return original(data, batch_keys, *args, **kwargs)
        finally:
            HERE.reset(token)

    utils.compute_advantage_for_multi_trajectories = for_multi_trajectories


def wrap_v1(trainer_base: Any) -> None:
    """Fetch for our methods what V1 leaves in its queue, and log their summary.

    Args:
        trainer_base: the module ``verl.trainer.ppo.v1.trainer_base``.
    """
    original = trainer_base.PPOTrainer._compute_advantage

    @functools.wraps(original)
    def compute_advantage(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        if _ours(self.config.algorithm.adv_estimator) is None:
            return original(self, batch, metrics)
        token = HERE.set(_fetched(trainer_base.tq, batch))
        try:
            done = original(self, batch, metrics)
        finally:
            HERE.reset(token)
        metrics.update(LAST.get())
        return done

    trainer_base.PPOTrainer._compute_advantage = compute_advantage


def _fetched(queue: Any, batch: Any) -> RowFacts:
    names = ["responses", "entropy", "response_mask", "extra_fields"]
    data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    present = set(data.keys())
    fields = _plain_list(data["extra_fields"]) if "extra_fields" in present else None
    tensors = {name: data[name] for name in names[:3] if name in present}
    padding = [bool(tag.get("is_padding", False)) for tag in batch.tags]
    return RowFacts(list(batch.keys), fields, tensors, padding)


def _plain_list(stack: Any) -> list[Any]:
    """Return the objects of a non-tensor field: tensordict gives a stack or a list, by their kind."""
    return list(stack.tolist() if hasattr(stack, "tolist") else stack)
