"""An agent that wants a login: what it is told to do by itself, and what its user is told to do."""

import json
import sys
from pathlib import Path

import pytest
from agent_stage import Stage, ask
from msgspec.structs import replace
from opencode import opencode_binary
from opencode_script import SCRIPT
from opencode_stage import Heard, stage

from goent.domain.errors import ProviderRefused
from goent.domain.events import Noticed
from goent.domain.settings import AgentSettings, OpenCodeSettings, Settings
from goent.domain.types import Prompt

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

BEFORE_OPENCODE = Path(__file__).with_name("demanding_opencode.py")

KEY = {"id": "key", "name": "An API key", "type": "agent"}
BROWSER = {"id": "browser", "name": "Log in with a browser"}
TERMINAL = {
    "id": "setup",
    "name": "Set up",
    "type": "terminal",
    "args": ["--login", "two words"],
    "env": {"SETUP": "a b"},
}


def logged_out(*methods: object) -> tuple[str, ...]:
    return ("--logged-out", "--logins", json.dumps(methods))


@pytest.mark.spec("P04")
@pytest.mark.parametrize("methods", [(BROWSER,), (TERMINAL, KEY)])
async def test_the_only_login_that_the_agent_makes_itself_is_made_and_told(
    tmp_path: Path, methods: tuple[object, ...]
) -> None:
    async with Stage(tmp_path, *logged_out(*methods)).running() as stage, stage.open() as session:
        first = await ask(session, "login")
        assert first.text in ("browser", "key")
        (notice,) = logins(first)
        assert f"go-ent chose {first.text!r} (" in notice
        assert not logins(await ask(session, "say hello"))


def logins(heard: Heard) -> list[str]:
    said = [event.text for event in heard.events if isinstance(event, Noticed)]
    return [text for text in said if text.startswith("actor required a login")]


async def test_of_several_the_one_that_the_settings_name_is_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path, *logged_out(BROWSER, KEY))
    stage.settings = named(stage, "key")
    async with stage.running(), stage.open() as session:
        assert (await ask(session, "login")).text == "key"


def named(stage: Stage, method: str) -> Settings:
    agent = replace(stage.settings.agents["actor"], auth_method=method)
    return replace(stage.settings, agents={"actor": agent})


@pytest.mark.parametrize(
    ("methods", "method", "words"),
    [
        (
            (BROWSER, KEY),
            "",
            (
                r"requires a login: set agents\.actor\.auth_method to one of "
                r"'browser' \(Log in with a browser\), 'key' \(An API key\) \(Authentication required\)"
            ),
        ),
        ((BROWSER,), "other", r"set agents\.actor\.auth_method to one of 'browser'"),
        (
            (TERMINAL,),
            "",
            (
                r"requires a login: run `SETUP='a b' \S+python\S* \S+agent_actor\.py --logged-out "
                r"--logins .* --login 'two words'` in a terminal \(Auth"
            ),
        ),
        ((TERMINAL, BROWSER, KEY), "setup", r"in a terminal, or set agents\.actor\.auth_method to"),
        ((), "", r"requires a login: start '.*' in a terminal and log in there \(Auth"),
    ],
)
async def test_what_is_for_a_person_to_do_or_to_choose_is_told_and_not_done(
    tmp_path: Path, methods: tuple[object, ...], method: str, words: str
) -> None:
    stage = Stage(tmp_path, *logged_out(*methods))
    stage.settings = named(stage, method)
    async with stage.running():
        with pytest.raises(ProviderRefused, match=words):
            async with stage.open():
                pass


async def test_a_login_that_fails_is_told_with_the_agents_words(tmp_path: Path) -> None:
    async with Stage(tmp_path, *logged_out(BROWSER), "--refuses-login").running() as stage:
        words = r"start .* log in there \(it offers: 'browser' .* failed: the browser was closed"
        with pytest.raises(ProviderRefused, match=words):
            async with stage.open():
                pass


async def test_a_session_is_gone_on_with_after_a_login(tmp_path: Path) -> None:
    flags = ("--resumes", "--keep", str(tmp_path / "sessions"))
    async with Stage(tmp_path, *flags).running() as stage, stage.open() as session:
        await ask(session, "say hello")
        token = session.token
    async with (
        Stage(tmp_path, *flags, *logged_out(BROWSER)).running() as stage,
        stage.open(resume=token) as session,
    ):
        assert (await ask(session, "history")).text == "say hello | history"


@pytest.mark.spec("P04")
async def test_go_ents_own_agent_without_a_key_names_its_command(tmp_path: Path) -> None:
    """A real agent with a login of its own making and one in a terminal."""
    stage = Stage(tmp_path)
    command = (sys.executable, "-P", "-m", "goent", "acp")
    sandbox = replace(stage.settings.sandbox, writable=(tmp_path,))
    agents = {"actor": AgentSettings(command=command)}
    stage.settings = replace(stage.settings, agents=agents, sandbox=sandbox)
    async with stage.running():
        with pytest.raises(ProviderRefused, match=r"run `\S+ -P -m goent acp --login` in a term"):
            async with stage.open():
                pass


@pytest.mark.spec("P04")
async def test_an_opencode_that_demands_a_login_is_told_to_make_its_own(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} {BEFORE_OPENCODE} {opencode_binary()} "$@"\n'
    )
    program.chmod(0o755)
    async with stage(SCRIPT, tmp_path) as built:
        built.use(opencode=OpenCodeSettings(command=str(program), profile="hermetic"))
        async with built.driver.open(built.spec(built.settings.project)) as session:
            heard = Heard()
            await session.prompt(Prompt(text="say hello"), heard.emit)
            assert heard.text == "Hello from glm-4."
