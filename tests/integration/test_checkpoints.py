"""Checkpoints as people have them, from `models add` to results, beside transformers' answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from batchjobs.cli.exits import Exit
from tests.support import checkpoints as made
from tests.support.checkpoints import Form, hub_cache, make_form, make_original
from tests.support.cli import run
from tests.support.greedy import Answer, Reference, check_greedy
from tests.support.processes import environment_of, python
from tests.support.tiny_models import FAMILIES, MORE_FAMILIES

MAX_TOKENS = 12
QUESTIONS = (
    "Name a colour!",
    "a" * 70 + " and then?",
    "How many moons has Jupiter, and which of them is the largest?",
)
END = frozenset({2})
MODEL = "mine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A family in a form. `config` changes the original's configuration, `words` are said to
    `models add`, and `template` is what the answers' prompts are to be made by."""

    family: str
    forms: tuple[Form, ...]
    config: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    template: str | None = None


def case(family: str, *forms: Form, **rest: Any) -> Case:
    return Case(family=family, forms=forms, **rest)


QUICK = {
    "bfloat16 in one file": case("llama", made.bfloat16, made.with_other_files),
    "float16 in shards": case("qwen3", made.float16_under_the_older_key, made.sharded),
    "mixed, tied, sampled": case(
        "gemma2", made.mixed, made.sampled, made.template_in_the_configuration
    ),
    "no type, no pad token": case("mistral", made.without_a_type, made.without_pad_token),
    "named templates": case(
        "qwen2", made.bfloat16, made.templates_in_a_list, config={"tie_word_embeddings": True}
    ),
    "one of two templates": case(
        "llama", made.bfloat16, made.templates_in_a_folder,
        words=("--chat-template", "rag"), template=made.OTHER_TEMPLATE,
    ),
}  # fmt: skip
SLOW = {
    "float32 in shards": case("phi3", made.float32, made.sharded),
    "mixed in shards": case("olmo2", made.mixed, made.sharded, made.sampled),
    "one template of a list": case(
        "qwen3", made.bfloat16, made.templates_in_a_list,
        words=("--chat-template", "rag"), template=made.OTHER_TEMPLATE,
    ),
    "templates without a default": case(
        "qwen3", made.bfloat16, made.templates_without_a_default,
        words=("--chat-template", "plain"),
        template=made.TEMPLATE,
    ),
    "tied head stored as well": case(
        "llama", made.bfloat16, made.with_a_stored_copy_of_the_tied_head,
        config={"tie_word_embeddings": True},
    ),
    "names without a prefix": case("mistral", made.bfloat16, made.without_prefix),
    "an adapter beside": case("llama", made.float16_under_the_older_key, made.with_an_adapter),
    **{f"{family} in bfloat16": case(family, made.bfloat16) for family in FAMILIES},
    **{f"{family} in bfloat16": case(family, made.bfloat16) for family in MORE_FAMILIES},
}  # fmt: skip

Originals = Callable[..., Path]


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Originals:
    """Float32 checkpoints by family and changed configuration, each made once."""
    folder = tmp_path_factory.mktemp("originals")

    def original(family: str, **config: Any) -> Path:
        wanted = folder / "-".join([family, *map(str, config.values())])
        return wanted if wanted.exists() else make_original(wanted, family, **config)

    return original


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHJOBS_POLL_SECONDS", "0.05")
    monkeypatch.chdir(tmp_path)


def chat(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def write_requests(*, temperature: float | None = 0) -> None:
    own = {} if temperature is None else {"temperature": temperature}
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "another-provider's",
                "messages": chat(question),
                **own,
                "max_tokens": MAX_TOKENS,
                "logprobs": True,
            },
        }
        for number, question in enumerate(QUESTIONS)
    ]
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def add(source: Path | str, *words: str) -> None:
    added = run("models", "add", MODEL, str(source), *words)
    assert added.exit_code == Exit.DONE, added.stderr


def submit() -> list[dict[str, Any]]:
    """The bodies that a job of every question ends with, in order."""
    write_requests()
    done = run("submit", "in.jsonl", "--model", MODEL, "-o", "out.jsonl")
    assert done.exit_code == Exit.DONE, done.stderr
    return read_bodies()


def read_bodies() -> list[dict[str, Any]]:
    records = map(json.loads, Path("out.jsonl").read_text().splitlines())
    return [record["response"]["body"] for record in records]


def answers(
    reference: Reference, bodies: Sequence[dict[str, Any]], template: str | None
) -> list[Answer]:
    found = []
    for question, body in zip(QUESTIONS, bodies, strict=True):
        prompt = reference.prompt(chat(question), template)
        [choice] = body["choices"]
        tokens = reference.tokens(choice["logprobs"]["content"])
        assert body["usage"]["prompt_tokens"] == len(prompt)
        found.append(Answer(prompt=prompt, tokens=tokens, finish_reason=choice["finish_reason"]))
    return found


def check(folder: Path, *, template: str | None = None, ends: frozenset[int] = END) -> list[Answer]:
    """Every answer of a new job is transformers' greedy one of the weights in `folder`."""
    reference = Reference(folder)
    found = answers(reference, submit(), template)
    for answer in found:
        check_greedy(reference, answer, ends=ends, max_tokens=MAX_TOKENS)
    return found


def check_case(wanted: Case, originals: Originals) -> None:
    original = originals(wanted.family, **wanted.config)
    folder = make_form(original, Path("weights").absolute(), *wanted.forms)
    add(folder, *wanted.words)
    check(folder, template=wanted.template)


@pytest.mark.parametrize("name", QUICK)
def test_answers_are_those_of_the_stored_weights(name: str, originals: Originals) -> None:
    check_case(QUICK[name], originals)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_family_and_form_answers_as_its_stored_weights(
    name: str, originals: Originals
) -> None:
    check_case(SLOW[name], originals)


@pytest.mark.parametrize("where", ["config.json", "generation_config.json"])
def test_an_answer_ends_at_each_of_several_ends(where: str, originals: Originals) -> None:
    plain = make_form(originals("llama"), Path("plain"), made.bfloat16)
    reference = Reference(plain)
    starts = [reference.continued(reference.prompt(chat(q), None), 4) for q in QUESTIONS]
    ends = frozenset({2, *(start[-1] for start in starts)})
    folder = make_form(plain, Path("weights").absolute(), made.ends_in(where, sorted(ends)))
    add(folder)
    found = check(folder, ends=ends)
    assert [answer.finish_reason for answer in found] == ["stop"] * len(QUESTIONS)
    assert max(len(answer.tokens) for answer in found) < 4


def test_a_models_own_sampling_holds_where_a_line_is_silent(originals: Originals) -> None:
    folder = make_form(originals("llama"), Path("weights").absolute(), made.bfloat16)
    made.edit_json(folder / "generation_config.json", do_sample=True, top_k=1)
    add(folder)
    reference = Reference(folder)
    write_requests(temperature=None)
    run("submit", "in.jsonl", "--model", MODEL, "-o", "out.jsonl")
    for answer in answers(reference, read_bodies(), None):
        check_greedy(reference, answer, ends=END, max_tokens=MAX_TOKENS)


def test_a_chat_without_a_template_says_what_to_do_and_works_with_one(
    originals: Originals,
) -> None:
    folder = make_form(originals("llama"), Path("weights").absolute(), made.without_template)
    add(folder)
    write_requests()
    failed = run("submit", "in.jsonl", "--model", MODEL, "--errors", "errors.jsonl")
    assert failed.exit_code == Exit.FAILED_LINES
    assert "the model has no chat template" in Path("errors.jsonl").read_text()
    Path("chat.jinja").write_text(made.OTHER_TEMPLATE)
    add(folder, "--chat-template", "chat.jinja")
    check(folder, template=made.OTHER_TEMPLATE)


def test_of_named_templates_without_a_default_one_has_to_be_chosen(originals: Originals) -> None:
    folder = make_form(
        originals("llama"), Path("weights").absolute(), made.templates_without_a_default
    )
    wrong = run("models", "add", MODEL, str(folder), "--chat-template", "other")
    assert wrong.exit_code == Exit.USAGE
    assert "neither a file nor one of the model's chat templates (plain, rag)" in wrong.stderr
    add(folder)
    write_requests()
    run("submit", "in.jsonl", "--model", MODEL, "--errors", "errors.jsonl")
    assert "several chat templates (plain, rag) and none is called default" in (
        Path("errors.jsonl").read_text()
    )


@pytest.mark.parametrize("whole", [False, True], ids=["snapshot", "repository"])
def test_a_model_in_the_hub_clients_cache_is_added_by_its_folder(
    whole: bool, originals: Originals
) -> None:
    plain = make_form(originals("llama"), Path("plain"), made.bfloat16, made.sharded)
    snapshot = hub_cache(plain, Path("hub").absolute())
    assert (snapshot / "config.json").is_symlink()
    add(snapshot.parents[1] if whole else snapshot)
    check(plain)


def test_a_cached_hub_id_is_used_where_the_hub_cannot_be_asked(
    originals: Originals, tmp_path: Path
) -> None:
    plain = make_form(originals("llama"), Path("plain"), made.bfloat16)
    snapshot = hub_cache(plain, tmp_path / "hub")
    write_requests()
    settings = {"poll_seconds": 0.05}
    environment = environment_of(tmp_path / "home", settings) | {
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }
    for command in (
        ["models", "add", MODEL, "org/tiny"],
        ["submit", "in.jsonl", "--model", MODEL, "-o", "out.jsonl"],
    ):
        with python("-m", "batchjobs", *command, environment=environment) as process:
            said, complained = process.communicate()
        assert process.returncode == 0, complained
        if command[0] == "models":
            assert f"this is what {snapshot} has of org/tiny" in said
    reference = Reference(plain)
    for answer in answers(reference, read_bodies(), None):
        check_greedy(reference, answer, ends=END, max_tokens=MAX_TOKENS)


def test_an_adapter_beside_a_model_is_said_not_to_be_used(originals: Originals) -> None:
    folder = make_form(originals("llama"), Path("weights").absolute(), made.with_an_adapter)
    added = run("models", "add", MODEL, str(folder))
    assert f"The adapter in {folder} (adapter_config.json) is not used" in added.stdout


def test_answers_of_other_weights_are_told_apart(originals: Originals) -> None:
    folder = make_form(originals("llama"), Path("weights").absolute(), made.bfloat16)
    add(folder)
    other = Reference(make_form(originals("ministral"), Path("other"), made.bfloat16))
    longest = answers(other, submit(), None)[-1]
    with pytest.raises(AssertionError, match=" off"):
        check_greedy(other, longest, ends=END, max_tokens=MAX_TOKENS)


def of_another_vocabulary(folder: Path) -> None:
    made.edit_json(folder / "config.json", vocab_size=130)


def with_code_of_its_own(folder: Path) -> None:
    made.edit_json(
        folder / "config.json", model_type="unheard-of", auto_map={"AutoConfig": "code.Config"}
    )


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (made.within_a_multimodal_model, "30 of its weights are missing, the first is lm_head"),
        (of_another_vocabulary, "lm_head.weight is stored as [128, 32], and config.json makes"),
        (with_code_of_its_own, "it brings code of its own, which is never run here"),
    ],
)
def test_what_only_loading_finds_out_is_one_sentence(
    form: Form, said: str, originals: Originals
) -> None:
    add(make_form(originals("llama"), Path("weights").absolute(), form))
    write_requests()
    failed = run("submit", "in.jsonl", "--model", MODEL)
    assert failed.exit_code == Exit.ERROR
    [error] = [line for line in failed.stderr.splitlines() if line.startswith("Error: ")]
    assert said in error
