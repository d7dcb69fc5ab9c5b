"""The reference back end: a causal language model in transformers.

The body runs once over length-bucketed rows, final hidden states are kept, and the head runs over a few
rows of them at a time, so that logits are never whole in memory. The softmax is float32, and so is the
head unless the model's own dtype is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from accredit.errors import BackendError, ParamError
from accredit.signals.batching import Row, block_mask, buckets, packed
from accredit.signals.models import libraries, model_folder, template_hash
from accredit.signals.reductions import row_pieces
from accredit.signals.request import ProbeRequest, Provenance, Scores, Span, Want
from accredit.typing import Array

__all__ = ["TransformersBackend"]

_OFFERS = frozenset({"logprob", "entropy", "gradnorm", "topk", "logits", "hidden_at", "hidden_before"})
_ALL = 1 << 20  # a budget that a few short rows never fill
_SAMPLED = 4096  # values of each weight tensor that its fingerprint reads


class TransformersBackend:
    """A causal language model, from a folder or from memory.

    Args:
        model: a transformers folder, a ``.gguf`` file, a packaged name (see `model_folder`), or a model
            that is loaded already: its weights are used as they are at each call.
        dtype: of the body: ``float32``, ``bfloat16`` or ``float16``; a loaded model keeps its own.
        head_dtype: of the product that makes logits: ``float32``, or ``model``: the body's, as the model
            itself multiplies. That is faster in bfloat16, and rounds each logit to its 8 bits.
        device: ``cpu``, ``cuda``, …; "" takes cuda where there is one.
        temperature: logits are divided by it.
        batch_tokens: padded tokens of one forward pass.
        policy_version: training step of the weights, for the provenance.

    Raises:
        BackendError: if there is no such model, or its logits are not what its head says.
        ParamError: for another ``head_dtype``.
    """

    offers = _OFFERS

    def __init__(
        self,
        model: Any,
        *,
        dtype: str = "float32",
        head_dtype: str = "float32",
        device: str = "",
        temperature: float = 1.0,
        batch_tokens: int = 4096,
        policy_version: str = "",
    ) -> None:
        if head_dtype not in ("float32", "model"):
            raise ParamError(f"head_dtype is float32 or model, not {head_dtype!r}")
        self._torch, self._transformers = libraries()
        self.temperature = temperature
        self.batch_tokens = batch_tokens
        self.policy_version = policy_version
        self.folder: Path | None = None
        if isinstance(model, str | Path):
            self.folder = model_folder(model)
            model = self._loaded(self.folder, dtype, device)
        self.model = model
        self._head_dtype = model.dtype if head_dtype == "model" else self._torch.float32
        self.shares = self._check()

    def _loaded(self, folder: Path, dtype: str, device: str) -> Any:
        torch = self._torch
        if dtype not in ("float32", "bfloat16", "float16"):
            raise BackendError(f"no dtype {dtype!r} here", code="ACC756", hint="float32, bfloat16 or float16")
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            made = self._transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=getattr(torch, dtype), local_files_only=True
            )
            return made.to(where).eval()
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise BackendError(
                f"{folder.name} cannot be loaded: {error}",
                code="ACC756",
                hint="Give a folder that save_pretrained wrote, and a device that this machine has",
            ) from error

    # -- who answers --------------------------------------------------------------------------

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the model's folder, for contexts that add text before the response.

        Raises:
            BackendError: if the model came without a folder.
        """
        if self.folder is None:
            raise BackendError("a model from memory has no tokenizer here", code="ACC756")
        return self._transformers.AutoTokenizer.from_pretrained(self.folder, local_files_only=True)

    @property
    def provenance(self) -> Provenance:
        """Model, fingerprint of the weights as they are now, dtype, temperature, library."""
        name = self.folder.name if self.folder else type(self.model).__name__
        return Provenance(
            model=name,
            weights=self._fingerprint(),
            policy_version=self.policy_version,
            dtype=str(self.model.dtype).removeprefix("torch."),
            head_dtype=str(self._head_dtype).removeprefix("torch."),
            temperature=self.temperature,
            backend="transformers",
            version=self._transformers.__version__,
            template=template_hash(self.folder) if self.folder else "",
        )

    def _fingerprint(self) -> str:
        """Hash of up to 4,096 evenly spaced values of every weight tensor."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            stride = max(1, tensor.numel() // _SAMPLED)
            some = tensor.detach().reshape(-1)[::stride][:_SAMPLED].float().cpu().numpy()
            digest.update(f"{name} {tuple(tensor.shape)}\n".encode() + some.tobytes())
        return digest.hexdigest()[:16]

    # -- answers ------------------------------------------------------------------------------

    def score(self, requests: Sequence[ProbeRequest]) -> Iterator[Scores]:
        """Yield the scores of each request (see `Backend.score`)."""
        for group in _by_want(requests):
            want = group[0].want
            for request in group:
                if not request.positions.size:
                    yield self._empty(request)
            for bucket in buckets(packed(group, self.batch_tokens, share=self.shares), self.batch_tokens):
                yield from self._scored(group, bucket, want)

    def rows(self, request: ProbeRequest, size: int) -> Iterator[Array]:
        """Yield log-probabilities of some rows at a time (see `Distributions.rows`)."""
        if not request.positions.size:
            return
        [row] = packed([request], self.batch_tokens)
        with self._quiet():
            before = self._states([row], ())[-1][0, row.index_of(0, request.positions - 1)]
        head = self._head()
        for piece in row_pieces(len(before), size):
            with self._quiet():
                found = (head(before[piece]).float() / self.temperature).log_softmax(1)
            yield found.cpu().numpy()

    def logprobs(self, requests: Sequence[ProbeRequest]) -> list[Any]:
        """Return log-probabilities with gradient, one float32 tensor a request.

        Dropout is off, as everywhere in a probe; logits are made again in the backward pass.

        Args:
            requests: their ``want`` does not matter.
        """
        from accredit.signals.torch_reductions import chosen_logprobs

        torch, head = self._torch, self._head()
        found: list[Any] = [torch.zeros(0, device=self.model.device) for _ in requests]
        for bucket in buckets(packed(requests, self.batch_tokens, share=False), self.batch_tokens):
            with self._evaluating():
                states = self._states(bucket, ())[-1]
                for b, row in enumerate(bucket):
                    request = requests[row.members[0]]
                    before = states[b, row.index_of(0, request.positions - 1)]
                    found[row.members[0]] = chosen_logprobs(
                        head, before, self._ids(request), self.temperature, self.vocabulary
                    )
        return found

    def _scored(self, requests: Sequence[ProbeRequest], bucket: list[Row], want: Want) -> list[Scores]:
        members = [
            (b, row, t, requests[i]) for b, row in enumerate(bucket) for t, i in enumerate(row.members)
        ]
        before = [row.index_of(t, request.positions - 1) for _, row, t, request in members]
        at = [row.index_of(t, request.positions) for _, row, t, request in members]
        which = np.repeat([b for b, *_ in members], [len(places) for places in before])
        layers = {"hidden_at": want.hidden_at, "hidden_before": want.hidden_before}
        with self._quiet():
            states = self._states(bucket, [layer for layer in layers.values() if layer is not None])
            found = self._reduced(states[-1], which, np.concatenate(before), [m[-1] for m in members], want)
            for (name, layer), places in zip(layers.items(), (at, before), strict=True):
                if layer is not None:
                    found[name] = states[layer][which, np.concatenate(places)].float()
            arrays = {name: values.cpu().numpy() for name, values in found.items()}
        ends = np.cumsum([0, *(len(places) for places in before)])
        return [
            Scores(request.key, **{name: values[first:last] for name, values in arrays.items()})
            for (*_, request), first, last in zip(members, ends[:-1], ends[1:], strict=True)
        ]

    def _reduced(
        self, states: Any, which: Array, rows: Array, requests: Sequence[ProbeRequest], want: Want
    ) -> dict[str, Any]:
        """What the distributions say; nothing where only states are wanted."""
        from accredit.signals.torch_reductions import reduced_states

        if not want.kinds - {"hidden_at", "hidden_before"}:
            return {}
        chosen = self._torch.cat([self._ids(request) for request in requests])
        return reduced_states(
            self._head(), states[which, rows], chosen, want, self.temperature, self.vocabulary
        )

    def _empty(self, request: ProbeRequest) -> Scores:
        """Arrays of no rows, as wide as they would be."""
        width, want = self.model.config.get_text_config().hidden_size, request.want
        wide = {"topk_ids": want.topk, "topk_logprobs": want.topk, "logits": len(want.logits)}
        names = [n for n in want.kinds if n != "topk"] + ["topk_ids", "topk_logprobs"] * bool(want.topk)
        shapes = {n: (0, wide.get(n, width)) if n in wide or "hidden" in n else (0,) for n in names}
        kinds = {"topk_ids": np.int32}
        return Scores(request.key, **{n: np.zeros(s, kinds.get(n, np.float32)) for n, s in shapes.items()})

    # -- the model ----------------------------------------------------------------------------

    def _states(self, bucket: Sequence[Row], layers: Sequence[int]) -> dict[int, Any]:
        """Hidden states ``[B, L, d]`` by layer; -1 is the last, after the final norm."""
        torch, device = self._torch, self.model.device
        length = max(row.length for row in bucket)
        ids = np.zeros((len(bucket), length), np.int64)
        places = np.tile(np.arange(length), (len(bucket), 1))
        for i, row in enumerate(bucket):
            ids[i, : row.length], places[i, : row.length] = row.ids(), row.places()
        if ids.max() >= self.vocabulary or ids.min() < 0:
            raise BackendError(
                f"id {ids.max()} is not among the {self.vocabulary} of this model",
                code="ACC755",
                hint="Give the model that sampled these rollouts, or one with the same tokenizer",
            )
        if self.longest is not None and places.max() >= self.longest:
            raise BackendError(
                f"{places.max() + 1} tokens are longer than the model's context of {self.longest}",
                code="ACC755",
                hint="It is never cut: leave such rollouts out",
            )
        mask = block_mask(bucket, length)
        more: dict[str, Any] = {}
        if mask is not None:
            more["attention_mask"] = torch.from_numpy(mask).to(device)
            more["position_ids"] = torch.from_numpy(places).to(device)
        count = self.model.config.get_text_config().num_hidden_layers
        inner = [layer for layer in layers if layer not in (-1, count)]
        out = self.model.base_model(
            input_ids=torch.from_numpy(ids).to(device),
            use_cache=False,
            output_hidden_states=bool(inner),
            **more,
        )
        found = {-1: out.last_hidden_state, count: out.last_hidden_state}
        for layer in inner:
            if not -count - 1 <= layer <= count:
                raise BackendError(f"no layer {layer}: this model has {count}", code="ACC755")
            found[layer] = out.hidden_states[layer]
        return found

    def _head(self) -> Any:
        """Final hidden states ``[n, d]`` to logits ``[n, V]``, in the dtype of the head."""
        linear, head = self._torch.nn.functional.linear, self.model.get_output_embeddings()
        kind = self._head_dtype
        weight, bias = head.weight.to(kind), None if head.bias is None else head.bias.to(kind)
        config = self.model.config.get_text_config()
        scale = (getattr(config, "logit_scale", None) or 1) / (getattr(config, "logits_scaling", None) or 1)
        cap = getattr(config, "final_logit_softcapping", None)

        def logits(states: Any) -> Any:
            found = linear(states.to(kind), weight, bias)
            if scale != 1:
                found = found.float() * scale
            return found if cap is None else self._torch.tanh(found.float() / cap) * cap

        return logits

    def _check(self) -> bool:
        """Whether rows may share a prefix; refuses a model whose logits are not what its head says."""
        start = np.arange(1, 6) % self.vocabulary
        asks = [
            ProbeRequest(np.concatenate([start, [i, i + 1]]), (Span(0, 5, 7),), Want(logprob=True))
            for i in (2, 3)
        ]
        rows = packed(asks, _ALL, share=False)
        ids = self._torch.from_numpy(np.stack([row.ids() for row in rows])).to(self.model.device)
        with self._quiet():
            whole = self.model(input_ids=ids, use_cache=False).logits.float()
            states = self._states(rows, ())[-1]
            mine = self._head()(states.reshape(-1, states.shape[-1])).reshape(whole.shape)
            if not self._near(mine, whole):
                raise BackendError(
                    f"{type(self.model).__name__} has logits that its head does not give for its last state",
                    code="ACC755",
                    hint="This architecture does more after its last layer than is known here",
                )
            try:
                shared = self._states(packed(asks, _ALL), ())[-1][0]
            except (RuntimeError, ValueError, TypeError):
                return False  # this attention takes no mask of blocks
            return self._near(shared[:7], states[0]) and self._near(shared[7:], states[1, 5:])

    def _near(self, mine: Any, other: Any) -> bool:
        tolerance = 1e-3 if self.model.dtype == self._torch.float32 else 5e-2
        return bool((mine.float() - other.float()).abs().max() <= tolerance * other.float().abs().max())

    @property
    def vocabulary(self) -> int:
        """Number of logits a row."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sequence that the model takes; None where it does not say."""
        found = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return found if isinstance(found, int) else None

    def _ids(self, request: ProbeRequest) -> Any:
        return self._torch.from_numpy(request.ids[request.positions]).to(self.model.device)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Dropout off while the model is asked; a trainer's model goes back to what it was."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        with self._torch.inference_mode(), self._evaluating():
            yield


def _by_want(requests: Sequence[ProbeRequest]) -> list[list[ProbeRequest]]:
    groups: dict[Want, list[ProbeRequest]] = {}
    for request in requests:
        groups.setdefault(request.want, []).append(request)
    return list(groups.values())
