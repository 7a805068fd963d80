"""What a run would only find out on its way is told before: folders, programs, repositories, commits."""

import subprocess
from pathlib import Path

import pytest

from goent.domain.errors import ConfigError
from goent.evals.files.suite_validation import validate
from goent.evals.files.target_reader import load_targets
from goent.evals.suites import WorkspaceSpec

CASE = "{{id: a, input: x, assertions: [{{type: is-json}}], workspace: {}}}"


def mistakes(folder: Path, workspace: str) -> list[str]:
    suite = folder / "my.eval.yaml"
    suite.write_text(f"tests:\n  - {CASE.format(workspace)}\n", encoding="utf-8")
    told = validate([suite], {}).mistakes
    return [line.replace(f"{folder}/", "") for line in told]


def workspace_of(folder: Path, workspace: str) -> WorkspaceSpec:
    assert mistakes(folder, workspace) == []
    (suite,) = validate([folder / "my.eval.yaml"], {}).suites
    found = suite.cases[0].workspace
    assert found
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (
        ("init", "-q", "-b", "main", "repo"),
        ("-C", "repo", "commit", "-qm", "x", "--allow-empty"),
        ("-C", "repo", "commit", "-qm", "y", "--allow-empty"),
        ("-C", "repo", "tag", "v1"),
        ("init", "-q", "empty"),
    ):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return tmp_path / "repo"


@pytest.mark.parametrize(
    ("workspace", "expected"),
    [
        (
            "{hooks: {before_all: {command: ls, cwd: gone}}}",
            "before_all.cwd: there is no folder 'gone'",
        ),
        ("{hooks: {after_all: {command: /no/ls}}}", "after_all.command: there is no file '/no/ls'"),
        (
            "{hooks: {after_each: {command: [./no], cwd: here}}}",
            "there is no file './no' in 'here'",
        ),
        ("{template: here, hooks: {before_all: {command: ./no x}}}", "no file './no' in 'here'"),
        ("{template: here, hooks: {before_each: {command: [./no]}}}", "no file './no' in 'here'"),
        ("{hooks: {after_each: {}}}", "after_each.command: is missing; write what to run"),
        ("{hooks: {before_all: {reset: often}}}", "reset: unknown reset 'often'"),
        ("{repository: here}", "repository: 'here' is not in a git repository; use `template`"),
        ("{repository: empty}", "repository: 'empty' has no commit yet"),
        ("{repository: repo, ref: v9}", "ref: there is no commit 'v9' in 'repo/.git'"),
        (
            "{repos: [{repo: repo, path: sub}]}",
            "repos[0].path: 'sub' is not supported; only one is",
        ),
        ("{repos: [{repo: repo}, {repo: repo}]}", "workspace.repos: only one is supported"),
        ("{repos: [{repo: repo, ancestor: 9}]}", "ancestor: there is no commit 'HEAD~9'"),
        ("{repos: [{repo: repo, commit: v9}]}", "repos[0].commit: there is no commit 'v9'"),
        ("{repos: [{repo: repo}], template: here}", "repos: cannot be used with `template`"),
        ("{mode: pooled}", "mode: 'pooled' is not supported"),
        ("{isolation: shared}", "isolation: 'shared' is not supported"),
        ("{env: {required_commands: [x]}}", "env: is not supported; check what has to be there"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_a_workspace_that_lacks_something_is_a_mistake(
    tmp_path: Path, workspace: str, expected: str
) -> None:
    (tmp_path / "here").mkdir()
    (line,) = mistakes(tmp_path, workspace)
    assert line.startswith("my.eval.yaml:2: tests[0].workspace.")
    assert expected in line


def test_what_may_still_come_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for hooks in (
        "{before_all: {command: [./made]}}",
        "{before_all: {command: make, cwd: here}, before_each: {command: [./made], cwd: here}}",
        "{before_all: {command: [sh, ./make.sh, out/made], cwd: here}}",
        "{before_each: {command: ./no || true, cwd: here}, after_each: {reset: strict}}",
    ):
        assert mistakes(tmp_path, f"{{hooks: {hooks}}}") == []


def test_a_workspace_as_agentv_writes_it(tmp_path: Path, repository: Path) -> None:
    found = workspace_of(
        tmp_path, "{repos: [{repo: ./repo, path: ., base_commit: v1, ancestor: 1}]}"
    )
    assert (found.repository, found.ref) == (str(repository), "v1~1")
    found = workspace_of(tmp_path, "{repos: [{repo: 'https://host.example/it.git', commit: abc}]}")
    assert (found.repository, found.ref) == ("https://host.example/it.git", "abc")
    workspace_of(tmp_path, "{mode: pooled, isolation: per_test}")
    found = workspace_of(tmp_path, "{hooks: {enabled: false, before_all: {command: ls}}}")
    assert found.before_all is None


def test_folders_of_commands_are_seen_from_the_suite(tmp_path: Path) -> None:
    (tmp_path / ".goent").mkdir()
    command = 'command: "x > {OUTPUT_FILE}"'
    (tmp_path / ".goent" / "targets.yaml").write_text(
        "targets:\n"
        f"  - {{name: a, provider: cli, {command}, cwd: gone, fallback_targets: [b]}}\n"
        f"  - {{name: b, provider: cli, {command}, healthcheck: {{command: x, cwd: no}}}}\n"
        f"  - {{name: c, provider: cli, {command}, cwd: unused}}\n"
        f"  - {{name: d, provider: cli, {command}, cwd: evals}}\n"
    )
    inner = tmp_path / "evals"
    inner.mkdir()
    suite = inner / "my.eval.yaml"
    suite.write_text("tests: [{id: i, input: x, assertions: [{type: is-json}], target: a}]")
    assert [line.replace(f"{tmp_path}/", "") for line in validate([suite], {}).mistakes] == [
        ".goent/targets.yaml:2: targets[0].cwd: there is no folder 'evals/gone', relative to the suite",
        ".goent/targets.yaml:3: targets[1].healthcheck.cwd: there is no folder 'no'",
    ]
    (told,) = validate([suite], {}, asked=["d"]).mistakes
    assert "targets[3].cwd" in told


def test_a_script_whose_folder_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    suite = tmp_path / "my.eval.yaml"
    grader = "{type: code-grader, command: [ls], cwd: gone}"
    suite.write_text(f"tests: [{{id: a, input: x, assertions: [{grader}]}}]")
    (told,) = validate([suite], {}).mistakes
    assert f"there is no folder '{tmp_path}/gone'; correct `cwd`" in told


def test_a_link_to_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "my.eval.yaml").symlink_to("gone.yaml")
    (told,) = validate([tmp_path], {}).mistakes
    assert "my.eval.yaml: cannot be read: it is a link to 'gone.yaml': No such file" in told


def test_a_template_is_looked_for_among_the_templates(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("[{type: is-json}]")
    (tmp_path / ".goent" / "templates").mkdir(parents=True)
    suite = tmp_path / "my.eval.yaml"
    suite.write_text("tests: [{id: a, input: x, assertions: [{include: ../../x}]}]")
    assert any(
        "'../../x' leads out of the templates" in line for line in validate([suite], {}).mistakes
    )
    suite.write_text("tests: [{id: a, input: x, assertions: [{include: ./x.yaml}]}]")
    assert validate([suite], {}).mistakes == ()


def test_settings_that_contradict_each_other_are_mistakes(tmp_path: Path) -> None:
    named = tmp_path / "targets.yaml"
    named.write_text(
        "targets:\n"
        "  - {name: a, provider: mock, response: x, delay_min_ms: 9, delay_max_ms: 3}\n"
        "  - {name: b, provider: mock, response: x, fallback_targets: [a, b]}\n"
        "  - {name: c, provider: replay, fixtures: x, execution_traces: y}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_targets(tmp_path, {}, named=named)
    assert [line.removeprefix(f"{named}:") for line in str(caught.value).splitlines()] == [
        "2: targets[0].delay_max_ms: must be at least delay_min_ms, 9, not 3",
        "3: targets[1].fallback_targets[1]: is the target itself; name another",
        "4: targets[2].execution_traces: is not supported; remove it",
    ]
