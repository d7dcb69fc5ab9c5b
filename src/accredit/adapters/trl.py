"""TRL's GRPOTrainer with the credit of any method: ``class Trainer(CreditMixin, GRPOTrainer): ...``.

The mixin lets TRL generate and score, and then puts token advantages ``[B, T]`` in the place of TRL's
scalar ones; TRL's losses take both.  Groups and rewards of all processes are used, as TRL uses them.

Steps and states come from ``rollout_func``: its extra field ``accredit`` holds a native record of each
completion (``{"steps": [{"state": …, "tokens": […], "reward": …}, …], "status": …}``).  Without it each
run of sampled tokens between tool results is a step.

Source: TRL 1.16.0 ``GRPOTrainer``; its ``_compute_loss`` takes advantages of shape ``(B, T)`` "to
support subclasses".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_kind_of, as_numpy
from accredit.adapters.padded import PaddedCredit, padded_credit
from accredit.adapters.running import card_of, log_findings
from accredit.adapters.trackers import scalars
from accredit.adapters.trl_batch import FIELD, Sampled, Scores, check_trainer, loss_mask, padded_rows, rows_of
from accredit.errors import DataError, ParamError

if TYPE_CHECKING:
    from trl import GRPOTrainer as _Trainer
else:
    _Trainer = object

__all__ = ["CreditMixin"]

logger = logging.getLogger("accredit.trl")

_LOGPROBS = (
    "old_per_token_logps",
    "sampling_per_token_logps",
)  # the first that is there; the second as lists
_MODALITIES = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)
_NOT_READ = {"scale_rewards": "group", "multi_objective_aggregation": "sum_then_normalize"}


class CreditMixin(_Trainer):  # type: ignore[misc]
    """Token advantages of a method in the place of GRPO's.

    Args:
        *args: of the trainer.
        credit: id, alias, or ``"id:name=value,…"`` of a method of the catalogue.
        credit_options: further options of `accredit.assign`: parameters of the method, ``base``,
            ``key``, ``spread``, ``compat`` …
        **kwargs: of the trainer.

    Attributes:
        last_credit: the credit of the last generation batch, of all processes.

    Raises:
        VersionError: for a TRL that the adapter does not know.
        ParamError: for an unknown method or parameter, or if the mixin does not stand before a
            GRPOTrainer.
    """

    last_credit: ac.Credit | None = None

    def __init__(
        self, *args: Any, credit: str, credit_options: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        check_trainer(CreditMixin, type(self))
        self._accredit = _Assignment(credit, dict(credit_options or {}))
        super().__init__(*args, **kwargs)
        self._accredit.watch(self)
        for name, default in _NOT_READ.items():
            value = getattr(self, name, default)
            if value != default:
                logger.warning(
                    "%s=%r is not read by accredit: give the method its own parameter", name, value
                )

    def credit_records(
        self, inputs: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any] | None] | None:
        """Return a native record of each completion of this process: steps, states, step rewards.

        Override it where they come from elsewhere than ``rollout_func``, ``self.environments`` say.

        Args:
            inputs: rows of the dataset, with the extra fields of ``rollout_func``.

        Returns:
            One record a completion, None for one without; None if there are none.
        """
        return self._accredit.taken(len(inputs)).records

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        from accelerate.utils import gather_object

        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        mode = "train" if self.model.training else "eval"
        per_group = self.num_generations if mode == "train" else self.num_generations_eval
        run = self._accredit
        if per_group == 1 and "group" in run.card.tags:
            return output  # an evaluation that compares nothing; TRL's own advantages are 0
        sampled = run.taken(len(inputs))
        rows = rows_of(
            inputs,
            sampled,
            output,
            self.credit_records(inputs),
            self._credit_signals(output),
            may_be_masked=self.mask_truncated_completions,
        )
        found = run.assign(
            padded_rows(gather_object(rows), run.scores(self), per_group),
            seed=self.args.seed + self.state.global_step,
            keep=mode == "train",
        )
        output["advantages"] = _laid_out(found, output, self.accelerator.process_index)
        self._log_credit(found.credit, mode)
        return output

    def _credit_signals(self, output: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers of tokens that TRL has, and those that the method needs and TRL can measure."""
        found = {}
        if output.get(_LOGPROBS[0]) is not None:
            found["logprobs"] = output[_LOGPROBS[0]]
        if output.get("ref_per_token_logps") is not None:
            found["logprobs_reference"] = output["ref_per_token_logps"]
        wanted = self._accredit.needs
        if "entropies" in wanted or ("logprobs" in wanted and not any(n in output for n in _LOGPROBS)):
            logprobs, found["entropies"] = self._measured(output)
            found.setdefault("logprobs", logprobs)
        return found

    def _measured(self, output: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return log-probabilities and entropies of the completions, of one more forward pass."""
        import torch

        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        attended = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        sizes = self.args.per_device_train_batch_size, self.args.per_device_eval_batch_size
        with torch.no_grad():
            logprobs, entropies, _ = self._get_per_token_logps_and_entropies(
                self.model,
                ids,
                attended,
                output["completion_ids"].size(1),
                batch_size=sizes[0] if self.model.training else sizes[1],
                compute_entropy=True,
                **{name: output[name] for name in _MODALITIES if name in output},
            )
        return logprobs, entropies

    def _log_credit(self, credit: ac.Credit, mode: str) -> None:
        self.last_credit = credit
        for name, value in scalars(credit).items():
            self._metrics[mode][name].append(value)
        self._logs["extra"][FIELD].extend([steps.tolist() for steps in credit.by_rollout()])
        if self.accelerator.is_main_process:
            log_findings(logger, self._accredit.method, credit)


def _laid_out(found: PaddedCredit, output: Mapping[str, Any], process: int) -> Any:
    """Return this process's advantages in TRL's layout: 0 where TRL's loss has no token."""
    mask = loss_mask(output)
    own = as_numpy(found.advantages)[process * len(mask) : (process + 1) * len(mask)]
    width = min(own.shape[1], mask.shape[1])
    wide = np.zeros(mask.shape, np.float32)
    wide[:, :width] = own[:, :width]
    return as_kind_of(output["completion_ids"], wide * mask)


class _Assignment:
    """A method with its options and memory, and what was seen of the generation it is for."""

    def __init__(self, method: str, options: dict[str, Any]) -> None:
        _check(method, options)
        self.method = method
        self.options = options
        self.card = card_of(method)
        if self.card.yields == "table":
            raise ParamError(f"method {self.card.id!r} gives a table, not credit of steps or tokens")
        self._memory: Any = options.pop("state", None)
        self.needs = _needs([method] if options.get("base") is None else [method, options["base"]])
        self._sampled: Sampled | None = None
        self._rewards: Any = None

    def watch(self, trainer: Any) -> None:
        """Note what the trainer's generation and reward functions give, whichever class defines them."""
        generate, calculate = trainer._generate, trainer._calculate_rewards

        def _generate(prompts: Any) -> Any:
            found = generate(prompts)
            self._sampled = Sampled.of(found, len(prompts))
            return found

        def _calculate_rewards(*args: Any, **kwargs: Any) -> Any:
            self._rewards = found = calculate(*args, **kwargs)
            return found

        trainer._generate, trainer._calculate_rewards = _generate, _calculate_rewards

    def taken(self, size: int) -> Sampled:
        """Return what the generation gave."""
        if self._sampled is None or self._rewards is None:
            raise DataError(f"nothing was generated for {size} prompts", code="ACC872")
        return self._sampled

    def scores(self, trainer: Any) -> Scores:
        """Return the rewards of all processes."""
        values = as_numpy(self._rewards).astype(np.float64)
        return Scores(
            values, list(trainer.reward_func_names), as_numpy(trainer.reward_weights).astype(np.float64)
        )

    def assign(self, rows: Any, *, seed: int, keep: bool) -> PaddedCredit:
        """Return the credit of padded rows; with ``keep`` a stateful method remembers them."""
        options = dict(self.options)
        if "stochastic" in self.card.tags:
            options.setdefault("seed", seed)  # the same on every process
        if "stateful" in self.card.tags:
            options["state"] = self._memory
        found = padded_credit(rows, self.method, **options)
        if keep:
            self._memory = found.credit.state
        return found


def _needs(methods: Sequence[str]) -> set[str]:
    """Return the signals that a method and its base need."""
    return {name for method in methods for need in card_of(method).needs for name in need.split("|")}


def _check(method: str, options: Mapping[str, Any]) -> None:
    """Raise a ParamError for an unknown method or parameter now, not after the first generation."""
    assign: Callable[..., Any] = ac.assign
    try:
        assign(ac.Batch.from_records([]), method, **options)
    except DataError:
        return  # an empty batch lacks what the method needs; its parameters are sound
