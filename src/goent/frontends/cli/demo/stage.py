"""Where does the demo play? In folders of its own, which are gone when it is over."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path

from anyio.from_thread import BlockingPortal, start_blocking_portal

from goent.config.trust.survey import trust_own
from goent.domain.types import Value
from goent.frontends.cli.ending import stop_daemon
from goent.proc import run
from goent.proc.programs import find_program
from goent.testing import Script, ScriptedModels, hermetic_env, load_script

SLUG = '''\
"""Titles into addresses."""

import re


def slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
'''
CONFIG = """\
default_provider: zai/glm-4.7
profile: hermetic
daemon: {idle_exit_s: 60}
"""
PROVIDERS = """\
providers:
  zai/glm-4.7:
    provider: zai
    model: glm-4.7
    base_url: {moonshot}
    api_key_env: DEMO_MOONSHOT_KEY
    context_limit: 128000
    price: {{input: 0.60, output: 2.20, cache_read: 0.11}}
  moonshotai/kimi-k2.6:
    provider: moonshotai
    model: kimi-k2.6
    base_url: {moonshot}
    api_key_env: DEMO_MOONSHOT_KEY
    context_limit: 262144
    price: {{input: 0.95, output: 4.00, cache_read: 0.16}}
  deepseek/deepseek-flash:
    provider: deepseek
    model: deepseek-flash
    base_url: {deepseek}
    api_key_env: DEMO_DEEPSEEK_KEY
    context_limit: 128000
    price: {{input: 0.15, output: 0.60, cache_read: 0.003}}
"""
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "TERM", "COLORTERM", "NO_COLOR", "PYTHONPATH", "GOENT_LOG")
GIT = ("git", "-c", "user.name=demo", "-c", "user.email=demo@localhost")


class Stage(Value, frozen=True, kw_only=True):
    """A sample project, ready for workers."""

    project: Path
    has_git: bool


@contextmanager
def open_stage(opencode: Path, *, keep: bool) -> Generator[Stage]:
    """A sample project whose models are scripted; leaving ends its daemon and removes it."""
    folder = Path(tempfile.mkdtemp(prefix="go-ent-demo-")).resolve()
    project = folder / "sample"
    try:
        with start_blocking_portal() as portal, _script() as script:
            models = ScriptedModels(script)
            with (
                portal.wrap_async_context_manager(models),
                _environment(_variables(folder, opencode, script)),
            ):
                _build(project, models, portal)
                try:
                    yield Stage(project=project, has_git=bool(find_program("git", os.environ)))
                finally:
                    with _undisturbed():
                        stop_daemon(project, force=True)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _script() -> Generator[Script]:
    with as_file(files("goent.frontends.cli.demo") / "script.yaml") as path:
        yield load_script(path)


def _variables(folder: Path, opencode: Path, script: Script) -> Mapping[str, str]:
    """Nothing of the user's but the way to their programs: no keys, no settings, no folders."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    keys = {
        f"DEMO_{name.upper()}_KEY": provider.key or ""
        for name, provider in script.providers.items()
    }
    own_python = str(Path(sys.executable).parent)  # the tasks call python3
    return {
        **passed,
        **hermetic_env(folder / "home"),
        **keys,
        "PATH": f"{own_python}:{os.environ.get('PATH', os.defpath)}",
        "XDG_RUNTIME_DIR": str(runtime),
        "GOENT_OPENCODE": str(opencode),
    }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _build(project: Path, models: ScriptedModels, portal: BlockingPortal) -> None:
    settings = project / ".goent"
    settings.mkdir(parents=True)
    (project / "slug.py").write_text(SLUG)
    (settings / "config.yaml").write_text(CONFIG)
    urls = {name: models.base_url(name) for name in models.script.providers}
    (settings / "providers.yaml").write_text(PROVIDERS.format(**urls))
    trust_own(project, os.environ)
    if find_program("git", os.environ):
        for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "A sample")):
            git = partial(run, (*GIT, *command), cwd=project, env=dict(os.environ), timeout=30)
            portal.call(git)


@contextmanager
def _undisturbed() -> Generator[None]:
    """Cleaning up is not interrupted: a second Ctrl-C would leave a daemon behind."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            with suppress(TypeError):  # a handler that C code set cannot be named
                signal.signal(number, handler)
