"""Other ACP agents as workers: what `agents:` means."""

from pathlib import Path

from ground import Ground

from goent.domain.settings import AgentSettings
from goent.domain.types import Provider

GEMINI = "agents: {gemini: {command: [gemini, --acp], models: [pro, flash]}}"


def test_agents_are_providers_by_their_own_names(ground: Ground) -> None:
    text = f"{GEMINI[:-1]}, plain: {{command: [plain]}}}}"
    ground.write(".goent/config.yaml", text)
    assert ground.load().providers == (
        Provider(name="gemini", backend="gemini", model="pro", method="agent"),
        Provider(name="gemini/flash", backend="gemini", model="flash", method="agent"),
        Provider(name="plain", backend="plain", model="", method="agent"),
    )
    assert ground.load().default_provider is None, "an agent is asked for, or not used"


def test_an_entry_whose_backend_is_an_agent_runs_by_it(ground: Ground) -> None:
    ground.write(".goent/config.yaml", GEMINI)
    ground.write(".goent/providers.yaml", "providers: {quick: {provider: gemini, model: flash}}")
    quick, *_ = ground.load().providers
    assert (quick.name, quick.method) == ("quick", "agent")
    assert ground.load().backends == {}


def test_an_agents_patience_can_be_set(ground: Ground) -> None:
    text = "agents: {slow: {command: [slow], start_timeout_s: 300, auth_method: key}}"
    ground.write(".goent/config.yaml", text)
    slow = AgentSettings(command=("slow",), start_timeout_s=300, auth_method="key")
    assert ground.load().agents == {"slow": slow}


def test_an_agent_cannot_have_the_name_of_a_backend(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "agents:\n  mine: {command: [x]}\n")
    opencode = '{"provider": {"mine": {"npm": "@ai-sdk/openai-compatible", "models": {"m": {}}}}}'
    ground.write("~/.config/opencode/opencode.json", opencode)
    (mistake,) = ground.mistakes()
    assert mistake == (
        ".goent/config.yaml:2: agents.mine: 'mine' is a backend of models already; "
        "give the agent another name"
    )


def test_commands_of_the_own_agent_may_write_where_the_user_says(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "agent: {writable: [~/.cache, made, /srv/x]}")
    assert ground.load().agent.writable == (
        ground.home / ".cache",
        ground.home / "made",
        Path("/srv/x"),
    )
