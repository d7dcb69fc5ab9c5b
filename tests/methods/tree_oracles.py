"""Trees of rollouts as strategies, and the credit of the tree methods by plain loops over dictionaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

from hypothesis import strategies as st

Record = dict[str, Any]
Path = tuple[Any, ...]


@st.composite
def grown(
    draw: st.DrawFn, rewards: tuple[float | None, ...] = (0.0, 1.0, 0.5, None), names: str = "aab"
) -> list[Record]:
    """Rollouts of one or two tasks whose steps have nodes; some end where others go on.

    Two of the first task at least have a reward and a step.
    """
    found: list[Record] = []
    sizes: dict[str, tuple[int, float]] = {}
    for r in range(draw(st.integers(2, 8))):
        group = draw(st.sampled_from(["g", "g", "h"])) if r > 1 else "g"
        tree = draw(st.sampled_from(["s", "s", "s", "t"]))
        path = draw(st.lists(st.sampled_from(names), min_size=int(r < 2), max_size=4))
        steps = []
        for t in range(len(path)):
            node = f"{group}{tree}" + "".join(path[: t + 1])
            if node not in sizes:
                sizes[node] = (draw(st.integers(0, 3)), draw(st.sampled_from([0.0, 0.5, 2.0])))
            n, entropy = sizes[node]
            steps.append({"node": node, "n_tokens": n, "node_entropy": entropy})
        reward = draw(st.sampled_from(rewards if r > 1 else [x for x in rewards if x is not None]))
        found.append({"id": f"r{r}", "group": group, "tree": tree, "reward": reward, "steps": steps})
    return found


class Slow:
    """A forest as dictionaries: nodes are paths, ``(group, tree, node, ...)``."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.path = [(r["group"], r["tree"], *(s["node"] for s in r["steps"])) for r in records]
        self.counted = [r["reward"] is not None for r in records]
        self.nodes = {p[:n]: None for p in self.path for n in range(2, len(p) + 1)}
        self.reward = [r["reward"] or 0.0 for r in records]
        self.tokens = {
            p[: t + 3]: s["n_tokens"]
            for p, r in zip(self.path, records, strict=True)
            for t, s in enumerate(r["steps"])
        }
        self.entropy = {
            p[: t + 3]: s["node_entropy"]
            for p, r in zip(self.path, records, strict=True)
            for t, s in enumerate(r["steps"])
        }

    def leaves(self, node: Path) -> list[int]:
        return [i for i, p in enumerate(self.path) if p[: len(node)] == node and self.counted[i]]

    def known(self, node: Path) -> bool:
        return bool(self.leaves(node))

    def inner(self) -> list[Path]:
        return [n for n in self.nodes if len(n) > 2 and self.known(n)]

    def children(self, node: Path) -> list[Path]:
        return [n for n in self.nodes if n[:-1] == node and self.known(n)]

    def ended(self, node: Path) -> list[int]:
        return [i for i in self.leaves(node) if self.path[i] == node]

    def leaf_mean(self, x: list[float]) -> dict[Path, float]:
        return {n: fmean(x[i] for i in self.leaves(n)) for n in self.nodes if self.known(n)}

    def child_mean(self, x: list[float], weighted: bool = False) -> dict[Path, float]:
        found: dict[Path, float] = {}

        def value(node: Path) -> float:
            mine = math.exp(self.entropy.get(node, 0.0)) if weighted else 1.0
            pairs = [(mine, x[i]) for i in self.ended(node)]
            pairs += [(math.exp(self.entropy[c]) if weighted else 1.0, value(c)) for c in self.children(node)]
            found[node] = sum(w * v for w, v in pairs) / sum(w for w, _ in pairs)
            return found[node]

        for root in (n for n in self.nodes if len(n) == 2 and self.known(n)):
            value(root)
        return found

    def siblings(self, node: Path, value: dict[Path, float], x: list[float]) -> list[float]:
        above = node[:-1]
        return [value[c] for c in self.children(above)] + [x[i] for i in self.ended(above)]

    def steps(self, credit: Callable[[Path], float]) -> list[list[float]]:
        return [
            [credit(p[: t + 3]) if self.counted[i] else 0.0 for t in range(len(p) - 2)]
            for i, p in enumerate(self.path)
        ]

    def paths(self, credit: list[float]) -> list[list[float]]:
        return [[credit[i] if self.counted[i] else 0.0] * (len(p) - 2) for i, p in enumerate(self.path)]

    def z(self, i: int, length: int, ddof: int, eps: float, x: list[float] | None = None) -> float:
        """z-score of leaf i among those that share its first ``length`` path entries."""
        x = self.reward if x is None else x
        inside = [x[j] for j in self.leaves(self.path[i][:length])]
        return (x[i] - fmean(inside)) / (std(inside, ddof) + eps) if len(inside) > 1 else 0.0


def std(values: list[float], ddof: int) -> float:
    if len(values) <= ddof or max(values) - min(values) < 1e-12:
        return 0.0
    mean = fmean(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - ddof))


def treerl(t: Slow, reweight: str, mode: str) -> list[list[float]]:
    v = t.leaf_mean(t.reward)

    def credit(n: Path) -> float:
        size = len(t.leaves(n))
        scale = {"sqrt": math.sqrt(size), "uniform": size, "none": 1}[reweight]
        local = v[n] - v[n[:-1]]
        return (local + (v[n] - v[n[:2]] if mode == "state" else 0.0)) / scale

    return t.steps(credit)


def treerl_code(t: Slow, reweight: str, norm: str, mode: str) -> list[list[float]]:
    x = []
    for i, p in enumerate(t.path):
        others = [t.reward[j] for j in t.leaves(p[:2]) if j != i]
        x.append(t.reward[i] - fmean(others) if others and t.counted[i] else 0.0)
    v: dict[Path, float] = {}
    for root in (n for n in t.nodes if len(n) == 2 and t.known(n)):
        below = [n for n in t.nodes if n[:2] == root and t.known(n)]
        k = {n: (t.tokens.get(n, 0) if norm == "token" else 1) for n in below}
        total = {n: sum(x[i] for i in t.leaves(n)) for n in below}
        size = sum(len(t.leaves(n)) * k[n] for n in below)
        m = sum(total[n] * k[n] for n in below) / size if size and norm != "none" else 0.0
        for n in below:
            leaves = len(t.leaves(n))
            scale = {"sqrt": math.sqrt(leaves), "uniform": leaves, "none": 1}[reweight]
            v[n] = (total[n] - m * leaves) / scale / leaves
    found = []
    for i, p in enumerate(t.path):
        own, last = [], None
        for length in range(3, len(p) + 1):
            n = p[:length]
            d = v[n] - v[n[:-1]] if t.counted[i] else 0.0
            if last is not None and abs(d) < 1e-8:
                d = last
            last = d
            value = v[n] if t.counted[i] else 0.0
            own.append({"state": d + value, "adv": d, "value": value}[mode] if t.counted[i] else 0.0)
        found.append(own)
    return found


def tree_grpo(t: Slow, mode: str) -> list[list[float]]:
    eps = 1e-6
    prompt = [t.z(i, 1, 1, eps) for i in range(len(t.path))]
    if mode == "tree_2norm":
        return t.paths([t.z(i, 2, 1, eps, prompt) for i in range(len(t.path))])
    tree = [t.z(i, 2, 1, eps) for i in range(len(t.path))]
    return t.paths([a + b if mode == "tree" else b for a, b in zip(prompt, tree, strict=True)])


def spo(t: Slow, normalise: str, prover: float) -> list[list[float]]:
    v = t.child_mean(t.reward)

    def credit(n: Path) -> float:
        local = v[n] - v[n[:-1]]
        if normalise == "siblings":
            local /= std(t.siblings(n, v, t.reward), 0) + 1e-8
        best = {m: 1 - (1 - v[m]) ** 4 for m in (n, n[:-1])}
        return local + prover * (best[n] - best[n[:-1]])

    return t.steps(credit)


def treepo(t: Slow, weights: str, skip_flat: bool) -> list[list[float]]:
    v = t.leaf_mean(t.reward)
    credit = []
    for i, p in enumerate(t.path):
        pairs = []
        for length in range(2, len(p)):
            leaves = t.leaves(p[:length])
            flat = std([t.reward[j] for j in leaves], 0) == 0
            if t.counted[i] and (len(leaves) > 1 or length == 2) and not (skip_flat and flat):
                w = len(leaves) if weights == "group_size" else 1
                pairs.append((w, t.reward[i] - v[p[:length]]))
        credit.append(sum(w * d for w, d in pairs) / sum(w for w, _ in pairs) if pairs else 0.0)
    return t.paths(credit)


def progress(t: Slow, eta: float) -> list[list[float]]:
    v = t.leaf_mean(t.reward)
    x = []
    for i, p in enumerate(t.path):
        above = [p[:n] for n in range(2, len(p))] if t.counted[i] else []
        size = sum(len(t.leaves(a)) for a in above) + 1
        x.append(sum(len(t.leaves(a)) * (t.reward[i] - v[a]) for a in above) / size)
    value = {n: (0.0 if len(n) == 2 else w) for n, w in t.child_mean(x).items()}
    found = []
    for i, p in enumerate(t.path):
        own = []
        for length in range(3, len(p) + 1):
            weak = eta ** (len(p) - length + 1) if eta > 0 else 1.0
            own.append(value[p[:length]] - weak * value[p[: length - 1]] if t.counted[i] else 0.0)
        found.append(own)
    return found


def sibling_norm(t: Slow) -> list[list[float]]:
    v = t.child_mean(t.reward)

    def rank(n: Path) -> float:
        if len(n) == 2:
            return 0.0
        same = t.siblings(n, v, t.reward)
        return v[n] if len(same) == 1 else (v[n] - fmean(same)) / (std(same, 0) + 1e-8)

    return t.steps(lambda n: rank(n) - rank(n[:-1]))


def whitened(t: Slow, credit: list[list[float]]) -> list[list[float]]:
    flat = [
        c
        for r, row, use in zip(t.records, credit, t.counted, strict=True)
        for s, c in zip(r["steps"], row, strict=True)
        for _ in range(s["n_tokens"])
        if use
    ]
    if len(flat) < 2 or max(flat) - min(flat) < 1e-12:
        return [[0.0] * len(row) for row in credit]
    mean, scale = fmean(flat), math.sqrt(std(flat, 1) ** 2 + 1e-8)
    return [
        [(c - mean) / scale if use else 0.0 for c in row] for row, use in zip(credit, t.counted, strict=True)
    ]


def at2po(t: Slow, node_value: str, node_adv: str) -> list[list[float]]:
    x = [t.z(i, 2, 0, 1e-6) for i in range(len(t.path))]
    v = t.leaf_mean(x) if node_value == "leaf_mean" else t.child_mean(x, node_value == "child_softmax")
    credit = {
        "value": lambda n: v[n],
        "diff_parent": lambda n: v[n] - v[n[:-1]],
        "diff_root": lambda n: v[n] - v[n[:2]],
        "diff_both": lambda n: 2 * v[n] - v[n[:-1]] - v[n[:2]],
    }
    return t.steps(credit[node_adv])


def treerpo(t: Slow, kind: str) -> list[list[float]]:
    v = t.child_mean(t.reward)

    def credit(n: Path) -> float:
        same = t.siblings(n, v, t.reward)
        m = fmean(same)
        spread = std(same, 0) if kind == "population" else math.sqrt(max(m * (1 - m), 0.0))
        return (v[n] - m) / (spread + 1e-6) if std(same, 0) else 0.0

    return t.steps(credit)


def treeadv(t: Slow) -> list[list[float]]:
    v = t.leaf_mean([t.z(i, 1, 1, 1e-6) for i in range(len(t.path))])
    return t.steps(lambda n: v[n])


def treeps(t: Slow) -> list[list[float]]:
    v = t.leaf_mean(t.reward)

    def credit(n: Path) -> float:
        d = {m: v[m] - v[m[:-1]] for m in t.inner() if m[0] == n[0]}
        spread = std(list(d.values()), 1)
        return (d[n] - fmean(d.values())) / (spread + 1e-6) if spread else 0.0

    return t.steps(credit)


def bpo(t: Slow) -> list[list[float]]:
    v = t.leaf_mean(t.reward)

    def credit(n: Path) -> float:
        same = t.siblings(n, v, t.reward)
        return v[n] - (sum(same) - v[n]) / (len(same) - 1) if len(same) > 1 else 0.0

    return t.steps(credit)
