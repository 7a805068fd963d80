"""Writes the settings files of `go-ent init`, which change nothing until a line is uncommented."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from goent.system.plain_files import check_no_link, plain_folder
from goent.system.project_folders import check_own

SETTINGS_FOLDER: Final = ".goent"

CONFIG_TEXT: Final = """\
## go-ent: settings of this project. What is not set here comes from ~/.config/go-ent/config.yaml,
## then from the defaults. A line with one # is an example: remove the # to use it.

## The provider for tasks that no rule and no caller decides: a name of providers.yaml, or
## backend/model.
#default_provider: glm

## What workers may do unasked: readonly, ask, edit or auto. Finer rules: the last that fits wins.
#permissions:
#  preset: edit
#  timeout_s: 300
#  rules:
#    - {tool: bash, pattern: "git push*", action: deny}
#    - {tool: bash, pattern: "make test", action: allow}

## Where workers work: auto, worktree, copy, shared or dedicated.
#isolation: auto

## USD. With hard: true the next call is refused; without it there is a warning.
#budget: {per_task: 0.50, per_day: 20.00, hard: false}

## Whether a task whose provider was asked for by name may move to a fallback.
#failover: {pinned: false}

#limits:
#  workers: 20
#  idle_close_s: 1800
#  cancel_grace_s: 10
#  turn_timeout_s: 1800
#  stall_s: 180
#  verify_s: 600

## Whether outcomes of earlier tasks order the providers that go-ent chooses among by itself.
#learning: off

## Other agents that speak ACP, as workers.
#agents:
#  gemini: {command: [gemini, --acp], models: [gemini-3-pro], auth_method: gemini-api-key}

#daemon: {idle_exit_s: 1800}

#opencode:
#  command: opencode
#  profile: user
#  project_config: true
#  warm: true
#  standby: auto
#  start_timeout_s: 60
## An `opencode serve` that somebody else runs, for the method serve.
#  serve_url: http://127.0.0.1:4096
#  serve_password_env: OPENCODE_SERVER_PASSWORD
"""

PROVIDERS_TEXT: Final = """\
## go-ent: the models that workers run on. Without this file they come from your opencode.json and
## from the keys in your environment. A line with one # is an example: remove the # to use it.

#providers:
#  glm:
#    method: acp                # acp, cli, serve, api or agent
#    provider: zai              # the backend, as in opencode.json
#    model: glm-4.7
#    context_limit: 204800
#    best_for: [bulk_implementation]
#    price: {input: 0.6, output: 2.2, cache_read: 0.11}    # USD per million tokens
#    fallbacks: [local]
#    limits: {concurrency: 8, rpm: 60}
#  local:
#    provider: ollama           # or lmstudio, vllm, llama.cpp: no key, and no price
#    model: qwen3-coder:30b
#  proxy:
#    provider: my-server
#    model: qwen3-coder
#    base_url: https://models.example/v1
#    api_key_env: MY_SERVER_KEY # the name of a variable, never the key

#defaults: {implementation: glm, large_context: glm, simple_tasks: local}

#health: {max_retries: 3, retry_delay: 5, probe: false, check_interval: 30}
"""

ROUTING_TEXT: Final = """\
## go-ent: which task goes where. The first rule that matches decides; without rules go-ent chooses.
## A line with one # is an example: remove the # to use it.

#routing_rules:
#  - match: {type: [lint, format], complexity: trivial}
#    method: cli
#    provider: local
#  - match: {context_tokens: ">50000"}
#    method: acp
#    provider: glm
#  - match: {type: refactor, files: ">3", keywords: [rename, extract]}
#    provider: glm
#  - match: {default: true}
#    provider: local
"""

STARTER_TEXTS: Final[Mapping[str, str]] = {
    "config.yaml": CONFIG_TEXT,
    "providers.yaml": PROVIDERS_TEXT,
    "routing.yaml": ROUTING_TEXT,
}


def write_starter(project: Path) -> list[Path]:
    """Write the files that are missing, and name them. Nothing that exists is touched.

    Raises `NotPlainFile` for a link, wherever it leads.
    """
    written: list[Path] = []
    with plain_folder(project / SETTINGS_FOLDER, make=True) as folder:
        for name, text in STARTER_TEXTS.items():
            with suppress(FileExistsError):
                folder.create(name, text.encode())
                written.append(project / SETTINGS_FOLDER / name)
    return written


def check_writable(project: Path) -> None:
    """Raise what keeps `write_starter` from writing: `NotPlainFile` for a link, `UnsafeFolder`."""
    check_own(project, project)
    for path in (SETTINGS_FOLDER, *(f"{SETTINGS_FOLDER}/{name}" for name in STARTER_TEXTS)):
        check_no_link(project / path)
        check_own(project / path, project)
