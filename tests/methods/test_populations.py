"""Quantiles and k-th largest values by population equal numpy's on each population by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accredit.methods._populations import Pools, mean_one

cells = st.tuples(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-9, 9)), st.integers(0, 2), st.booleans())


def pools_of(drawn, n=3):
    values, ids, counted = (np.array(x) for x in (zip(*drawn, strict=True) if drawn else ([], [], [])))
    return Pools(values.astype(float), ids.astype(np.int64), n, counted.astype(bool))


@given(st.lists(cells, max_size=12), st.floats(0, 1))
def test_quantiles_and_largest(drawn, q):
    for pools in (pools_of(drawn), pools_of([(v, 0, c) for v, _, c in drawn], 1)):
        for p in range(pools.n):
            own = pools.values[(pools.ids == p) & pools.counted]
            assert own.size == pools.size[p]
            expected = np.quantile(own, q) if own.size else 0.0
            np.testing.assert_allclose(pools.quantile(q)[p], expected, rtol=1e-9, atol=1e-9)
            for k in range(1, own.size + 1):
                largest = pools.largest(np.minimum(k, np.maximum(pools.size, 1)))
                assert np.sort(own)[-k] == largest[p]


@given(st.lists(cells, max_size=12))
def test_mean_one_divides_by_the_mean_of_what_counts(drawn):
    pools = pools_of([(abs(v) + 0.1, i, c) for v, i, c in drawn])
    found = mean_one(pools.values, pools.ids, 3, pools.counted)
    for value, i, counted, got in zip(pools.values, pools.ids, pools.counted, found, strict=True):
        own = pools.values[(pools.ids == i) & pools.counted]
        np.testing.assert_allclose(got, value / own.mean() if counted else 1.0, rtol=1e-12)
