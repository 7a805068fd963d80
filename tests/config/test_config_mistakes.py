"""Every mistake names its file, line and key, the value and the remedy."""

from pathlib import Path

import pytest
from ground import Ground

CONFIG = [
    (
        "permisions: {preset: ask}",
        "1: permisions: unknown key; did you mean 'permissions'?",
    ),
    (
        "zzz: 1",
        (
            "1: zzz: unknown key; one of opencode, agents, default_provider, permissions, "
            "isolation, budget, failover, limits, agent, daemon, sandbox, learning, evals"
        ),
    ),
    (
        "permissions:\n  preset: rw",
        "2: permissions.preset: unknown preset 'rw'; one of readonly, ask, edit, auto",
    ),
    (
        "permissions:\n  timeout_s: soon",
        "2: permissions.timeout_s: expected a number, not 'soon'",
    ),
    ("permissions: 5", "1: permissions: expected a table, not 5"),
    ("permissions: {rules: {tool: edit}}", "1: permissions.rules: expected a list, not a table"),
    (
        "permissions:\n  rules:\n    - {tool: bash}",
        "3: permissions.rules[0].action: is missing; one of allow, ask, deny",
    ),
    (
        "permissions:\n  rules:\n    - {action: deny}",
        "3: permissions.rules[0].tool: is missing; name a tool such as edit or bash, or '*'",
    ),
    (
        "permissions:\n  rules:\n    - tool: write\n      action: deny",
        "3: permissions.rules[0].tool: OpenCode asks for 'write' as 'edit'; write 'edit'",
    ),
    (
        "isolation: jail",
        "1: isolation: unknown isolation 'jail'; one of auto, worktree, copy, shared, dedicated",
    ),
    ("budget: {per_day: -1}", "1: budget.per_day: must be at least 0, not -1"),
    ("budget: {per_day: '20'}", "1: budget.per_day: expected a number, not '20'"),
    ("budget: {per_day: .inf}", "1: budget.per_day: expected a number, not '.inf'"),
    ("budget: {direct: no way}", "1: budget.direct: unknown direct 'no way'; one of refuse, stop"),
    ("budget: {hard: 1}", "1: budget.hard: expected true or false, not 1"),
    ("failover: {pined: true}", "1: failover.pined: unknown key; did you mean 'pinned'?"),
    ("limits: {workers: 0}", "1: limits.workers: must be at least 1, not 0"),
    ("limits: {workers: 2.5}", "1: limits.workers: must be a whole number, not 2.5"),
    ("limits: {workers: 1e999}", "1: limits.workers: must be at most 1000000000000, not 1e999"),
    (
        "agents:\n  gemini: {command: gemini --acp}",
        "2: agents.gemini.command: must be a list of words, such as [gemini, --acp]",
    ),
    ("daemon: {idle_exit_s: 0}", "1: daemon.idle_exit_s: must be at least 1, not 0"),
    ("opencode: {command: [a, b]}", "1: opencode.command: expected text, not a list"),
    ("opencode: {command: ''}", "1: opencode.command: must not be empty"),
    (
        "opencode: {command: yes}",
        "1: opencode.command: expected text, not yes; put it in quotes",
    ),
    ("profile: guest", "1: profile: unknown profile 'guest'; one of user, hermetic"),
    (
        "opencode:\n  config_path: nowhere.json",
        "2: opencode.config_path: there is no file 'nowhere.json'; correct the path",
    ),
    ("default_provider: gpt", "1: default_provider: unknown provider 'gpt'; there is none"),
    ("budget: {}\nbudget: {}", "2: budget: given twice, first on line 1; keep one"),
    ("? [a]\n: b", "1: ?: a key must be a plain word"),
    ("limits: {\nworkers: 3", "3: invalid YAML: did not find expected ',' or '}'"),
    ("a: *b", "1: nothing before it is named &b"),
    ("- a", "expected settings, one `key: value` a line"),
    ("a: &a [*a]", "1: nothing before it is named &a"),
    ("--- {}\n--- {}", "2: a second document begins; keep one"),
    ("a: \x00", "1: invalid YAML: control characters are not allowed"),
]

ENTRY = "providers:\n  glm:\n    provider: moonshot\n    model: glm-4\n    "
OTHER = "\n  kimi:\n    provider: moonshot\n    model: kimi-k2\n    "

PROVIDERS = [
    (
        "providers:\n  glm: {model: x}",
        "2: providers.glm.provider: is missing; name the backend, as in opencode.json",
    ),
    (
        "providers:\n  glm: {provider: x}",
        "2: providers.glm.model: is missing; name the model, as the backend calls it",
    ),
    (
        ENTRY + "method: ssh",
        "5: providers.glm.method: unknown method 'ssh'; one of acp, cli, serve, api, agent",
    ),
    (ENTRY + "context_limit: big", "5: providers.glm.context_limit: expected a number, not 'big'"),
    (
        ENTRY + "price: {input: -1, output: 1}",
        "5: providers.glm.price.input: must be at least 0, not -1",
    ),
    (
        ENTRY + "price: {input: 1}",
        (
            "5: providers.glm.price.output: is missing; a price has both input and output, "
            "in USD per million"
        ),
    ),
    (ENTRY + "price: cheap", "5: providers.glm.price: expected a table, not 'cheap'"),
    (
        ENTRY + "cost_per_1m_tokens: free",
        "5: providers.glm.cost_per_1m_tokens: expected a number, not 'free'",
    ),
    (
        ENTRY + "cost: a lot",
        "5: providers.glm.cost: 'a lot' is not a price such as '$0.01/1M tokens'",
    ),
    (
        ENTRY + "cost: {per_1k_token: 1}",
        "5: providers.glm.cost.per_1k_token: unknown key; did you mean 'per_1k_tokens'?",
    ),
    (
        ENTRY + "price: {input: 1, output: 1}\n    cost_per_1m_tokens: 1",
        "6: providers.glm.cost_per_1m_tokens: 'price' says the same; keep one of them",
    ),
    (
        ENTRY + "base_url: example.org/v1",
        "5: providers.glm.base_url: 'example.org/v1' is not a URL such as https://host/v1",
    ),
    (
        ENTRY + "base_url: 'http://[::1'",
        "5: providers.glm.base_url: 'http://[::1' is not a URL such as https://host/v1",
    ),
    (ENTRY + "limits: {rpm: 0}", "5: providers.glm.limits.rpm: must be at least 1, not 0"),
    (
        ENTRY + "fallbacks: [glm-5]",
        "5: providers.glm.fallbacks[0]: unknown provider 'glm-5'; did you mean 'glm'?",
    ),
    (
        ENTRY + "fallbacks: [glm]",
        "5: providers.glm.fallbacks[0]: 'glm' cannot be its own fallback",
    ),
    (
        ENTRY + "best_for: [[a]]",
        "5: providers.glm.best_for[0]: expected a list of texts, not a list",
    ),
    (
        ENTRY + "base_url: http://a/v1" + OTHER + "base_url: http://b/v1",
        (
            "9: providers.kimi.base_url: 'http://b/v1' contradicts 'http://a/v1' "
            "(.goent/providers.yaml:5: providers.glm.base_url); backend 'moonshot' has one of them"
        ),
    ),
    (
        "defaults: {implementation: glmm}",
        "1: defaults.implementation: unknown provider 'glmm'; there is none",
    ),
    (
        "defaults: {implementing: glm}",
        "1: defaults.implementing: unknown key; did you mean 'implement'?",
    ),
    ("health: {max_retries: 1.5}", "1: health.max_retries: must be a whole number, not 1.5"),
    ("budget: {per_task: lots}", "1: budget.per_task: expected a number, not 'lots'"),
    (
        "opencode_config_path: /nowhere/opencode.json",
        "1: opencode_config_path: there is no file '/nowhere/opencode.json'; correct the path",
    ),
]

ROUTING = [
    (
        "routing_rules:\n  - match: {type: lnt}\n    method: cli",
        "2: routing_rules[0].match.type: unknown type 'lnt'; did you mean 'lint'?",
    ),
    (
        "routing_rules:\n  - match: {complexity: hard}\n    method: cli",
        (
            "2: routing_rules[0].match.complexity: unknown complexity 'hard'; "
            "one of trivial, simple, medium, complex, high"
        ),
    ),
    (
        "routing_rules:\n  - match: {files: '<3'}\n    method: cli",
        "2: routing_rules[0].match.files: '<3' is not a threshold such as 3, '>=3' or '>2'",
    ),
    (
        "rules:\n  - match: {file_count: 3, files: 3}\n    action: {method: cli}",
        "2: rules[0].match.file_count: 'files' says the same; keep one of them",
    ),
    (
        "routing_rules:\n  - method: cli",
        "2: routing_rules[0].match: is missing; to match every task write `match: {default: true}`",
    ),
    (
        "routing_rules:\n  - match: {}\n    method: cli",
        (
            "2: routing_rules[0].match.default: matches no task; "
            "to match every task write `match: {default: true}`"
        ),
    ),
    (
        "routing_rules:\n  - match: {default: true, type: fix}\n    method: cli",
        "2: routing_rules[0].match.default: matches every task, so 'type' has no effect",
    ),
    (
        "routing_rules:\n  - match: {default: true}",
        "2: routing_rules[0].provider: is missing; a rule names a method, a provider or a model",
    ),
    (
        "routing_rules:\n  - match: {default: true}\n    provider: antropic",
        "3: routing_rules[0].provider: unknown provider 'antropic'; did you mean 'anthropic'?",
    ),
    (
        "rules:\n  - match: {default: true}",
        "2: rules[0].action: is missing; name a method, a provider or a model",
    ),
    (
        "rules:\n  - match: {max_cost: free}\n    action: {method: cli}",
        "2: rules[0].match.max_cost: expected a number, not 'free'",
    ),
    (
        "rules:\n  - match: {default: true}\n    priority: first\n    action: {method: cli}",
        "3: rules[0].priority: expected a number, not 'first'",
    ),
    ("rules: []\nrouting_rules: []", "1: rules: 'routing_rules' says the same; keep one of them"),
    ("rule: []", "1: rule: unknown key; did you mean 'rules'?"),
    ("routing_rules: [5]", "1: routing_rules[0]: expected a table, not 5"),
]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        *(("config.yaml", *case) for case in CONFIG),
        *(("providers.yaml", *case) for case in PROVIDERS),
        *(("routing.yaml", *case) for case in ROUTING),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(
    ground: Ground, file: str, text: str, message: str
) -> None:
    ground.write(f".goent/{file}", text)
    separator = ":" if message[0].isdigit() else ": "
    assert f".goent/{file}{separator}{message}" in ground.mistakes()


def test_all_mistakes_of_all_files_are_told_at_once_in_order(ground: Ground) -> None:
    ground.write("~/.config/go-ent/config.yaml", "limits: {worker: 1}")
    ground.write(".goent/config.yaml", "isolation: jail\nbudget: {per_day: -1}")
    ground.write(".goent/routing.yaml", "rules: {}")
    heads = [line.split(": ")[0] for line in ground.mistakes(GOENT_PROFILE="guest")]
    assert heads == [
        ".goent/config.yaml:1",
        ".goent/config.yaml:2",
        ".goent/routing.yaml:1",
        "environment",
        "~/.config/go-ent/config.yaml:1",
    ]


def test_a_variable_with_a_mistake_is_named(ground: Ground) -> None:
    assert ground.mistakes(GOENT_PROFILE="guest", GOENT_DEFAULT_PROVIDER="gpt") == [
        "environment: GOENT_PROFILE: unknown profile 'guest'; one of user, hermetic",
        "environment: GOENT_DEFAULT_PROVIDER: unknown provider 'gpt'; there is none",
    ]


def test_a_key_in_place_of_a_variable_name_is_not_repeated(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", ENTRY + "api_key_env: sk-very-secret")
    (mistake,) = ground.mistakes()
    assert mistake.startswith(".goent/providers.yaml:5: providers.glm.api_key_env: ")
    assert "secret" not in mistake


def test_a_file_that_cannot_be_read_makes_no_mistakes_of_the_others(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", "providers: [")
    ground.write(".goent/config.yaml", "default_provider: glm\nisolation: jail")
    heads = [line.split(": ")[:2] for line in ground.mistakes()]
    assert heads == [
        [".goent/config.yaml:2", "isolation"],
        [".goent/providers.yaml:2", "invalid YAML"],
    ]


def test_a_folder_in_place_of_a_file_is_told(ground: Ground) -> None:
    (ground.project / ".goent/config.yaml").mkdir(parents=True)
    assert ground.mistakes() == [".goent/config.yaml: is a folder, not a regular file"]


def test_a_file_that_is_no_text_is_told(ground: Ground) -> None:
    path: Path = ground.write(".goent/config.yaml", "")
    path.write_bytes(b"isolation: \xff")
    assert ground.mistakes() == [".goent/config.yaml: is not UTF-8 text (byte 11)"]


def test_a_file_of_absurd_size_is_not_read(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "#" * 4_000_001)
    assert ground.mistakes() == [".goent/config.yaml: is larger than 4000000 bytes"]


def test_aliases_that_multiply_cost_nothing(ground: Ground) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    ground.write(".goent/config.yaml", "\n".join(lines))
    assert len(ground.mistakes()) == 40


def test_an_alias_means_what_its_anchor_says(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "limits: {idle_close_s: &t 7}\ndaemon: {idle_exit_s: *t}")
    assert ground.load().daemon.idle_exit_s == 7
