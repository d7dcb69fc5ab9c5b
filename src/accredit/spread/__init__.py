"""From step credit to token advantages: broadcast, normalise, clip, mask."""

from accredit.spread.core import Spread, Whitening, population_T, spread_tokens, token_mask, whiten

__all__ = ["Spread", "Whitening", "population_T", "spread_tokens", "token_mask", "whiten"]
