"""From step credit to token advantages: broadcast, normalise, clip, mask, loss weights."""

from accredit.spread.core import Spread, Whitening, loss_weights, spread_tokens, token_mask, whiten

__all__ = ["Spread", "Whitening", "loss_weights", "spread_tokens", "token_mask", "whiten"]
