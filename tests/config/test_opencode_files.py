"""What is found of OpenCode's own files, from a folder up."""

import json
import os
from pathlib import Path

import pytest

from goent.config.trust_survey import opencode_acts
from goent.domain.settings import Act
from goent.system.project_folders import UnsafeFolder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def found(folder: Path, *, whole: bool = False) -> tuple[Act, ...]:
    home = next(each / "home" for each in folder.parents if (each / "home").is_dir())
    return opencode_acts(folder, {"HOME": str(home)}, whole=whole)


@pytest.mark.parametrize(
    "text",
    [
        '{"plugin": ["./x.js"]}',
        '{"plugins": ["some-package"]}',
        '{"pl\\u0075gin": ["./x.js"]}',
        '{"__proto__": {"plugins": ["./x.js"]}}',
        '{"plugin": [["./x.js", {"a": 1}]]} // a comment',
        '{"provider": {"x": {"npm": "evil"}}}',
        '{"mcp": {"x": {"type": "local", "command": ["evil"]}}}',
        '{"of a later version": true}',
        "no JSON at all",
        "\ufeff\ufeff{}",
    ],
)
@pytest.mark.parametrize("name", ["opencode.json", "opencode.jsonc", ".opencode/opencode.json"])
def test_a_configuration_that_may_act_is_found(project: Path, name: str, text: str) -> None:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert [act.file for act in found(project)] == [str(path)]


def test_one_that_only_chooses_is_not(project: Path) -> None:
    harmless: dict[str, object] = {
        "$schema": "x",
        "model": "a/b",
        "theme": "dark",
        "plugin": [],
        "permission": {},
    }
    (project / "opencode.json").write_text(json.dumps(harmless))
    assert not found(project)
    assert found(project, whole=True)


@pytest.mark.parametrize(
    "name", ["plugin/a.js", "plugins/a.ts", "plugin/deep/a.js", "plugin/a.mjs"]
)
def test_plugins_are_found_wherever_they_lie(project: Path, name: str) -> None:
    for folder in (project, project.parent):
        path = folder / ".opencode" / name
        path.parent.mkdir(parents=True)
        path.write_text("export default {}")
        below = project / "a" / "b"
        below.mkdir(parents=True, exist_ok=True)
        assert f".opencode/{name}" in found(below)[0].says
        path.unlink()


def test_links_are_followed(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.js").write_text("1")
    (project / ".opencode").mkdir()
    (project / ".opencode/plugin").symlink_to(elsewhere)
    before = found(project)
    (elsewhere / "a.js").write_text("2")
    after = found(project)
    assert before[0].digest != after[0].digest


def test_what_a_plugin_imports_is_part_of_it(project: Path) -> None:
    plugin = project / ".opencode/plugin/a.ts"
    plugin.parent.mkdir(parents=True)
    plugin.write_text('import { b } from /* ours */ "../../lib/b.js"\nawait import("./c")\n')
    library = project / "lib/b.ts"
    library.parent.mkdir()
    library.write_text('export * from "./d"')
    last = project / "lib/d.js"
    last.write_text("1")
    before = found(project)[0]
    assert "lib/d.js" in {part.name for part in before.materials}
    last.write_text("2")
    assert found(project)[0].digest != before.digest


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("./evil", "evil.js"),
        ("./evil", "evil.ts"),
        ("./evil.js", "evil.ts"),
        ("./evil.js?v=1", "evil.js"),
        ("./evil", "evil/index.js"),
        ("./evil", "evil/main.js"),
        ("./evil", "evil/lib/start.mjs"),
        ("file://{folder}/evil", "evil.js"),
        ("evil@file:{folder}/evil", "evil/main.js"),
    ],
)
def test_a_named_plugin_is_looked_at_however_it_is_found(
    project: Path, name: str, file: str
) -> None:
    """OpenCode imports it by Bun's rules: endings, folders, packages."""
    path = project / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent != project:
        package = {"main": "main.js", "exports": {".": "./lib/start.mjs"}}
        (project / "evil/package.json").write_text(json.dumps(package))
    (project / "opencode.json").write_text(
        json.dumps({"plugin": [name.format(folder=project)]}),
    )
    path.write_text("1")
    before = found(project)[0]
    path.write_text("2")
    assert found(project)[0].digest != before.digest


def test_the_same_content_in_another_folder_is_the_same_act(project: Path, tmp_path: Path) -> None:
    """So a worktree of a trusted project is trusted."""
    acts: list[list[str]] = []
    for folder in (project, tmp_path / "worktree"):
        (folder / ".opencode/plugin").mkdir(parents=True)
        (folder / ".opencode/plugin/a.js").write_text("1")
        (folder / "opencode.json").write_text('{"plugin": ["./p.js"]}')
        (folder / "p.js").write_text("2")
        acts.append([act.digest for act in found(folder)])
    assert acts[0] == acts[1]


def test_what_cannot_be_looked_at_cannot_be_allowed(project: Path) -> None:
    (project / ".opencode/plugin").mkdir(parents=True)
    os.mkfifo(project / ".opencode/plugin/a.js")
    (project / "opencode.json").mkdir()
    assert [act.digest for act in found(project)] == ["", ""]


def test_the_users_own_home_is_theirs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".opencode/plugin").mkdir(parents=True)
    (home / ".opencode/plugin/a.js").write_text("1")
    (home / "opencode.json").write_text('{"plugin": ["x"]}')
    below = home / "project"
    below.mkdir()
    assert not opencode_acts(below, {"HOME": str(home)}, whole=False)


def test_what_others_can_write_is_refused(project: Path) -> None:
    (project / ".opencode/plugin").mkdir(parents=True)
    (project / ".opencode").chmod(0o777)
    with pytest.raises(UnsafeFolder, match="can be written by everybody"):
        found(project)
