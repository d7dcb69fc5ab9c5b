"""Reference loss terms: what a trainer does with token advantages, in numpy, with gradients."""

from accredit.losses.policy import AGGREGATIONS, Loss, aggregate, cispo, gspo, ppo, sapo, token_weights

__all__ = ["AGGREGATIONS", "Loss", "aggregate", "cispo", "gspo", "ppo", "sapo", "token_weights"]
