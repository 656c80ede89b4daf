"""Chat templates that a model folder brings, by their names."""

from __future__ import annotations

from pathlib import Path

from batchjobs.model_folders import read_object

DEFAULT = "default"
_FOLDER = "additional_chat_templates"
_FILE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"


def own_templates(folder: Path) -> dict[str, str]:
    """Jinja text by name; files go before what `tokenizer_config.json` says, as in transformers.

    Raises ModelError: that file is not JSON.
    """
    files = {file.stem: file for file in sorted((folder / _FOLDER).glob("*.jinja"))}
    if (folder / _FILE).is_file():
        files[DEFAULT] = folder / _FILE
    if files:
        return {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    return _configured(folder / _CONFIG)


def _configured(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    said = read_object(file).get("chat_template")
    if isinstance(said, str):
        return {DEFAULT: said}
    listed = said if isinstance(said, list) else []
    entries = [entry for entry in listed if isinstance(entry, dict)]
    return {
        entry["name"]: entry["template"]
        for entry in entries
        if isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
    }
