"""The parts of the OpenCode driver that need no OpenCode."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from goent.agents.opencode_program import find_opencode, find_ripgrep, platform_packages
from goent.domain.errors import (
    AuthRefused,
    ConfigError,
    ContextOverflow,
    OpenCodeMissing,
    OutOfCredit,
    ProviderDown,
    ProviderRefused,
    ProviderTimeout,
    RateLimited,
    UnknownModel,
    WorkerError,
)
from goent.domain.settings import Backend, OpenCodeSettings, PermissionRule, Settings
from goent.domain.types import Price, Provider
from goent.opencode.config_overlay import gated_backends, generate_overlay
from goent.opencode.opencode_turn import classify_error, classify_fault
from goent.opencode.process_launch import overlay_environment, with_program_folder
from goent.opencode.server_api import ErrorData, SessionFault
from goent.permissions.access_rules import strictest_action
from goent.rpc.json_rpc import RpcError

ELF = b"\x7fELF and so on"


def program(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def test_npms_stub_leads_to_the_program_beside_it(tmp_path: Path) -> None:
    modules = tmp_path / "node_modules"
    stub = program(modules / "opencode-ai/bin/opencode.exe", b"echo postinstall script was not run")
    link = modules / ".bin/opencode"
    link.parent.mkdir()
    link.symlink_to(stub)
    with pytest.raises(OpenCodeMissing, match="npm install -g opencode-ai"):
        find_opencode(None, {"PATH": str(link.parent)})
    real = program(modules / platform_packages()[0] / "bin/opencode", ELF)
    assert find_opencode(None, {"PATH": str(link.parent)}) == real
    assert find_opencode(str(stub), {}) == real


def test_the_setting_comes_before_the_variable_and_that_before_the_path(tmp_path: Path) -> None:
    a, b, c = (program(tmp_path / name / "opencode", ELF) for name in "abc")
    environ = {"PATH": str(a.parent), "GOENT_OPENCODE": str(b)}
    assert find_opencode(str(c), environ) == c
    assert find_opencode(None, environ) == b
    assert find_opencode(None, {"PATH": str(a.parent)}) == a


def test_a_wrapper_of_the_users_own_is_taken_as_it_is(tmp_path: Path) -> None:
    wrapper = program(tmp_path / "opencode", b"#!/bin/sh\nexec real-opencode\n")
    assert find_opencode(str(wrapper), {}) == wrapper


def test_a_missing_opencode_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OpenCodeMissing, match="GOENT_OPENCODE="):
        find_opencode(None, {"PATH": str(tmp_path)})


def test_ripgrep_is_found_beside_opencode_and_put_at_the_end_of_the_path(tmp_path: Path) -> None:
    opencode = program(tmp_path / "node_modules/opencode-x/bin/opencode", ELF)
    empty = {"PATH": str(tmp_path)}
    assert find_ripgrep(opencode, empty) is None
    system, machine = platform_packages()[0].split("-")[1:3]
    rg = program(tmp_path / f"node_modules/@vscode/ripgrep-{system}-{machine}/bin/rg", ELF)
    assert find_ripgrep(opencode, empty) == rg
    assert with_program_folder(empty, rg)["PATH"] == f"{tmp_path}:{rg.parent}"


SETTINGS = Settings(
    project=Path("/project"),
    providers=(
        Provider(
            name="glm",
            backend="moonshot",
            model="glm-4",
            context_limit=128_000,
            price=Price(input=Decimal("0.6"), output=Decimal("2.2")),
        ),
    ),
    backends={
        "moonshot": Backend(id="moonshot", base_url="https://moon/v1", key_env="MOON_KEY"),
        "claude": Backend(id="claude", dialect="anthropic", key_env="CLAUDE_KEY"),
        "local": Backend(id="local", base_url="http://localhost:1/v1", npm="@ai-sdk/other"),
        "google": Backend(id="google", npm="@ai-sdk/google"),
    },
)
ENVIRON = {"MOON_KEY": "sk-moon", "CLAUDE_KEY": "sk-claude", "PATH": "/bin"}


def generated(settings: Settings = SETTINGS):
    held = gated_backends(settings, ENVIRON)
    addresses = {name: f"http://gate/{name}" for name in (*held, "goent-warm")}
    return generate_overlay(settings, held=held, addresses=addresses, token="token")


def test_what_go_ent_holds_a_key_for_goes_to_the_gate_and_the_rest_direct() -> None:
    providers = generated().provider
    assert providers.keys() == {"goent-warm", "moonshot", "claude", "local"}
    moon, claude, local = (providers[name] for name in ("moonshot", "claude", "local"))
    assert (moon.options.base_url, moon.options.key) == ("http://gate/moonshot", "token")
    assert (moon.npm, claude.npm) == ("@ai-sdk/openai-compatible", "@ai-sdk/anthropic")
    assert (local.npm, local.options.base_url) == ("@ai-sdk/other", "http://localhost:1/v1")


def test_the_generated_configuration_on_the_wire() -> None:
    told = msgspec.json.decode(msgspec.json.encode(generated()))
    assert told["provider"]["moonshot"]["models"]["glm-4"] == {
        "tool_call": True,
        "limit": {"context": 128_000, "output": 8192},
        "cost": {"input": 0.6, "output": 2.2},
    }
    assert told["provider"]["local"]["options"] == {"baseURL": "http://localhost:1/v1"}
    assert told["enabled_providers"] == [
        "moonshot",
        "claude",
        "local",
        "google",
        "opencode",
        "goent-warm",
    ]
    assert told["permission"] == dict.fromkeys(
        ("edit", "bash", "external_directory", "webfetch"), "ask"
    )
    assert told["model"] == told["small_model"] == "goent-warm/warm"
    assert told["agent"] == {"title": {"disable": True}}
    assert (told["share"], told["autoupdate"], told["disabled_providers"]) == (
        "disabled",
        False,
        [],
    )


def test_the_limits_of_a_model_in_opencodes_catalogue_are_left_to_it() -> None:
    claude = Provider(
        name="c", backend="anthropic", model="claude-haiku-4-5", context_limit=200_000
    )
    backend = Backend(id="anthropic", dialect="anthropic", key_env="CLAUDE_KEY")
    settings = msgspec.structs.replace(
        SETTINGS, providers=(claude,), backends={"anthropic": backend}
    )
    entry = generated(settings).provider["anthropic"]
    assert entry.models["claude-haiku-4-5"].limit is msgspec.UNSET


def test_a_worker_inherits_neither_keys_nor_marks_nor_another_opencodes_settings(
    tmp_path: Path,
) -> None:
    environ = {
        **ENVIRON,
        "GOENT_PROC": "a.1.2/3",
        "OPENCODE_PID": "7",
        "OPENCODE_PERMISSION": '"allow"',
        "OPENCODE": "1",
        "OPENCODE_API_KEY": "the user's own login",
        "LANG": "C",
    }
    env = overlay_environment(SETTINGS, environ, generated(), cwd=tmp_path, home=tmp_path)
    assert not env.keys() & {"MOON_KEY", "CLAUDE_KEY", "GOENT_PROC", "OPENCODE_PID"}
    assert not env.keys() & {"OPENCODE", "OPENCODE_PERMISSION"}
    assert env["OPENCODE_API_KEY"] == "the user's own login"
    assert not any("sk-" in value for value in env.values())
    assert (env["LANG"], env["PWD"]) == ("C", str(tmp_path))
    assert "HOME" not in env
    assert env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


def test_garbage_is_collected_early_unless_the_user_wants_it_otherwise(tmp_path: Path) -> None:
    def heap(**environ: str) -> str:
        env = overlay_environment(SETTINGS, environ, generated(), cwd=tmp_path, home=tmp_path)
        return env["BUN_JSC_forceRAMSize"]

    assert heap() == "1000000000"
    assert heap(BUN_JSC_forceRAMSize="8000000000") == "8000000000"


def test_the_users_file_and_the_repositorys_are_read_as_the_settings_say(tmp_path: Path) -> None:
    config = tmp_path / "opencode.json"
    opencode = OpenCodeSettings(config_path=config, project_config=True)
    settings = msgspec.structs.replace(SETTINGS, opencode=opencode)

    def env() -> dict[str, str]:
        return overlay_environment(settings, ENVIRON, generated(), cwd=tmp_path, home=tmp_path)

    with pytest.raises(ConfigError, match="does not exist any more"):
        env()
    config.write_text("{}")
    assert env()["OPENCODE_CONFIG"] == str(config)
    assert "OPENCODE_DISABLE_PROJECT_CONFIG" not in env()


def test_a_hermetic_worker_lives_in_a_folder_of_its_own(tmp_path: Path) -> None:
    hermetic = OpenCodeSettings(profile="hermetic")
    settings = msgspec.structs.replace(SETTINGS, opencode=hermetic)
    environ = {**ENVIRON, "OPENCODE_API_KEY": "not for this one"}
    env = overlay_environment(settings, environ, generated(settings), cwd=tmp_path, home=tmp_path)
    assert "OPENCODE_API_KEY" not in env
    assert env["HOME"] == str(tmp_path)
    assert env["XDG_DATA_HOME"] == str(tmp_path / ".local/share")
    assert env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert "opencode" not in generated(settings).enabled_providers


def rule(tool: str, pattern: str, action: str) -> PermissionRule:
    return msgspec.convert({"tool": tool, "pattern": pattern, "action": action}, PermissionRule)


@pytest.mark.parametrize(
    ("permission", "patterns", "verdict"),
    [
        ("bash", ["git status"], "allow"),
        ("bash", ["git"], "allow"),
        ("bash", ["gitk"], "ask"),
        ("bash", ["git push origin"], "deny"),
        ("bash", ["git status", "rm x"], "ask"),
        ("bash", ["git status", "git push"], "deny"),
        ("edit", ["src/deep/a.py"], "allow"),
        ("edit", ["src/.env"], "deny"),
        ("webfetch", ["https://x"], "ask"),
        ("edit", [], "ask"),
    ],
)
def test_the_last_rule_that_matches_decides_and_the_strictest_pattern_wins(
    permission: str, patterns: list[str], verdict: str
) -> None:
    rules = (
        rule("bash", "*", "ask"),
        rule("bash", "git *", "allow"),
        rule("bash", "git push *", "deny"),
        rule("edit", "src/*", "allow"),
        rule("*", "*.env", "deny"),
    )
    assert strictest_action(rules, permission, patterns) == verdict


@pytest.mark.parametrize(
    ("message", "name", "status", "kind"),
    [
        ("bad key", "APIError", 401, AuthRefused),
        ("out of money", "APIError", 402, OutOfCredit),
        ("no, for once", "APIError", 400, ProviderRefused),
        ("no such model", "APIError", 404, UnknownModel),
        ("slow down", "APIError", 429, RateLimited),
        ("oops", "APIError", 500, ProviderDown),
        ("busy", "APIError", 529, ProviderDown),
        ("gateway", "APIError", 504, ProviderTimeout),
        ("too long", "ContextOverflowError", None, ContextOverflow),
        ("Model not found: a/b.", "UnknownError", None, UnknownModel),
        ("Connection reset by server", "UnknownError", None, ProviderDown),
        ("The operation timed out.", "UnknownError", None, ProviderTimeout),
        ("Tool call not allowed", "UnknownError", None, WorkerError),
    ],
)
def test_an_error_of_opencode_is_the_failure_that_it_means(
    message: str, name: str, status: int | None, kind: type[WorkerError]
) -> None:
    error = RpcError(-32603, f"Internal error: {message}", {"service": "s", "errorName": name})
    fault = SessionFault(name=name, data=ErrorData(message=message, status=status))
    failure = classify_error(error, fault)
    assert type(failure) is kind
    assert str(failure).startswith(message)


def test_an_earlier_error_of_the_session_does_not_colour_the_last() -> None:
    error = RpcError(-32603, "Internal error: something else")
    fault = SessionFault(name="APIError", data=ErrorData(message="bad key", status=401))
    assert type(classify_error(error, fault)) is WorkerError


@pytest.mark.parametrize("status", [400, 402, None])
def test_the_gateways_own_word_on_a_failure_counts_more_than_the_status(status: int | None) -> None:
    message = "go-ent: rate_limited: moonshot asks to wait, and so does its fallback"
    fault = SessionFault(name="APIError", data=ErrorData(message=message, status=status))
    failure = classify_error(RpcError(-32603, f"Internal error: {message}", None), fault)
    assert type(failure) is RateLimited
    assert str(failure) == "moonshot asks to wait, and so does its fallback"
    other = SessionFault(name="APIError", data=ErrorData(message="go-ent: tomorrow: x", status=402))
    assert type(classify_fault(other)) is ProviderRefused
