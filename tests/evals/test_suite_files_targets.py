"""Targets are those of the nearest file, in either spelling."""

from pathlib import Path

import pytest

from goent.domain.errors import ConfigError
from goent.evals.files.target_reader import load_targets
from goent.evals.suites import Retry


def write(folder: Path, text: str) -> Path:
    path = folder / "targets.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_nearest_folder_counts_and_our_own_file_first(tmp_path: Path) -> None:
    write(tmp_path / ".goent", "targets: [{name: far, provider: mock}]")
    near = tmp_path / "a"
    write(near / ".goent", "targets: [{name: x, provider: mock, response: ours}]")
    write(near / ".agentv", "targets: [{name: x, provider: mock}, {name: y, provider: mock}]")
    suite = near / "evals" / "my.eval.yaml"
    found = load_targets(suite, {})
    assert list(found) == ["x", "y"]
    assert found["x"].settings == {"response": "ours"}


def test_no_file_means_no_targets_and_a_named_one_must_be_there(tmp_path: Path) -> None:
    named = write(tmp_path / "elsewhere", "targets: [{name: n, provider: mock}]")
    assert list(load_targets(tmp_path, {}, named=named)) == ["n"]
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: No such file"):
        load_targets(tmp_path, {}, named=tmp_path / "gone.yaml")


def test_both_spellings_aliases_and_the_environment(tmp_path: Path) -> None:
    named = write(
        tmp_path,
        """
targets:
  - name: main
    provider: opencode
    baseUrl: ${{ URL }}
    streamLogs: false
    tools: {myTool: false}
    workers: 3
    judge_target: judge
    fallback_targets: [judge]
    maxRetries: 1
    retryInitialDelayMs: 500
  - {name: alias, use_target: "${{ WHICH }}"}
  - {name: other, use_target: main, fallback_targets: [alias], grader_target: alias}
  - {name: judge, provider: openai, model: m, api_key: "${{ NONE }}"}
""",
    )
    environ = {"URL": "http://127.0.0.1:1", "WHICH": "main"}
    found = load_targets(tmp_path, environ, named=named)
    main = found["main"]
    assert main.settings == {
        "base_url": "http://127.0.0.1:1",
        "stream_logs": False,
        "tools": {"myTool": False},
    }
    assert (main.workers, main.grader_target, main.fallbacks) == (3, "judge", ("judge",))
    assert main.retry == Retry(max_retries=1, initial_delay_s=0.5)
    assert (found["alias"].name, found["alias"].settings) == ("alias", main.settings)
    assert (found["alias"].grader_target, found["alias"].fallbacks) == ("judge", ("judge",))
    assert (found["other"].grader_target, found["other"].fallbacks) == ("alias", ("alias",))
    assert found["judge"].settings == {"model": "m", "api_key": ""}
    assert (main.place.line, main.place.key) == (3, "targets[0]")


def test_every_mistake_of_a_targets_file_is_told(tmp_path: Path) -> None:
    named = write(
        tmp_path,
        """
targets:
  - {name: a, provider: cli}
  - {name: a, provider: cli, comand: x, command: y, timeoutSeconds: 0}
  - {name: b, provider: opencod}
  - {name: c, use_target: d}
  - {name: d, use_target: c}
  - {name: e, provider: opencode, permission_policy: maybe, fallback_targets: [zz]}
  - {name: g, provider: cli, command: x, healthcheck: {url: y, timeout_seconds: 0}, env: {A: 1}}
  - {name: h, provider: cli, command: x, healthcheck: {}, retry_status_codes: [429]}
  - {name: f, provider: mock, workers: 99, delayMs: 1, delay_ms: 2}
  - {name: i, provider: goent, race: [{mthod: acp}]}
  - {name: j, provider: replay}
  - {name: n, provider: goent, method: root, model: 3}
  - {name: k, provider: cli, command: "cat {PROMPT_FIEL} ${HOME} > out"}
  - {name: l, provider: cli, commandTemplate: "echo ${OUTPUT_FILE}"}
  - {name: m, provider: cli, command: "cat ${HOME}/{EVAL_ID} > {OUTPUT_FILE}"}
""",
    )
    with pytest.raises(ConfigError) as caught:
        load_targets(tmp_path, {}, named=named)
    told = str(caught.value)
    for expected in (
        "targets.yaml:3: targets[0].command: is missing",
        "targets.yaml:4: targets[1]: 'a' is the name of another target too, on line 3",
        "targets.yaml:4: targets[1].comand: unknown key; did you mean 'command'?",
        "targets.yaml:4: targets[1].timeoutSeconds: must be more than 0, not 0",
        "targets.yaml:5: targets[2].provider: 'opencod' is no provider, or not supported",
        "did you mean 'opencode'?",
        "targets[3].use_target: 'd' stands for itself",
        "targets[5].permission_policy: unknown permission_policy 'maybe'",
        "targets[5].fallback_targets[0]: there is no target 'zz'",
        "targets[6].healthcheck.timeout_seconds: must be more than 0, not 0",
        "targets[6].env.A: expected text, not 1",
        "targets.yaml:10: targets[7].healthcheck: has nothing to ask",
        "targets[7].retry_status_codes: a command fails by its exit code, which is no status",
        "targets[9].race[0].mthod: unknown key",
        "targets[10].fixtures: is missing",
        "targets[11].method: unknown method 'root'; one of ",
        "targets[11].model: expected text, not 3",
        "targets[12].command: '{PROMPT_FIEL}' is no placeholder; did you mean '{PROMPT_FILE}'?",
        "targets[12].command: could never answer: let it write its answer to {OUTPUT_FILE}",
        "targets[13].commandTemplate: could never answer",
        "targets[8].workers: must be at most 50, not 99",
        "targets[8].delay_ms: 'delay_ms' says the same",
    ):
        assert expected in told, told
    assert "targets[14]" not in told
    assert "HOME" not in told


def test_a_status_names_failures_that_are_tried_again(tmp_path: Path) -> None:
    named = write(
        tmp_path,
        """
targets:
  - {name: usual, provider: goent}
  - {name: limits, provider: goent, retry_status_codes: [429]}
  - {name: servers, provider: opencode, retryStatusCodes: [500, 503]}
  - {name: none, provider: opencode, retry_status_codes: []}
  - {name: theirs, provider: azure, retry_status_codes: [418]}
""",
    )
    never = {
        name: set(spec.retry.never)
        for name, spec in load_targets(tmp_path, {}, named=named).items()
    }
    every = {"rate_limited", "provider_down", "provider_overloaded", "provider_timeout"}
    assert (never["usual"], never["theirs"], never["none"]) == (set(), set(), every)
    assert never["limits"] == every - {"rate_limited"}
    assert never["servers"] == {"rate_limited", "provider_timeout"}

    write(tmp_path, "targets: [{name: x, provider: goent, retry_status_codes: [429, 401]}]")
    with pytest.raises(ConfigError, match="retry_status_codes: '401' is no status that may pass"):
        load_targets(tmp_path, {}, named=named)
