"""What recurs in a batch: groups, returns, states; computed once, shared by all methods."""

from accredit.index.core import Index, OutcomeInSteps, first_seen
from accredit.index.explaining import group_members, rollout_term, visit_term
from accredit.index.fork_links import fork_parents, fork_step_R, owner_S, root_R, tree_R
from accredit.index.forks import Forks
from accredit.index.graph import StateGraph
from accredit.index.groups import GroupStats, flat_groups
from accredit.index.rewards import carrier_S, has_score_R, token_returns, token_rewards
from accredit.index.segments import (
    discounted_sum,
    last_of_row,
    row_any,
    row_of,
    row_sum,
    segment_extremes,
    segment_sum,
    shifted,
)
from accredit.index.states import NORMALISERS, Key, key_column, similar_clusters, word_keys
from accredit.index.turns import step_entropy

__all__ = [
    "NORMALISERS",
    "Forks",
    "GroupStats",
    "Index",
    "Key",
    "OutcomeInSteps",
    "StateGraph",
    "carrier_S",
    "discounted_sum",
    "first_seen",
    "flat_groups",
    "fork_parents",
    "fork_step_R",
    "group_members",
    "has_score_R",
    "key_column",
    "last_of_row",
    "owner_S",
    "rollout_term",
    "root_R",
    "row_any",
    "row_of",
    "row_sum",
    "segment_extremes",
    "segment_sum",
    "shifted",
    "similar_clusters",
    "step_entropy",
    "token_returns",
    "token_rewards",
    "tree_R",
    "visit_term",
    "word_keys",
]
