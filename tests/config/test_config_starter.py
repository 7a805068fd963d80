"""The files of `go-ent init` are valid, with and without their examples."""

import yaml
from ground import Ground

from goent.config.starter_files import write_starter
from goent.domain.settings import Settings

FILES = ["config.yaml", "providers.yaml", "routing.yaml"]


def uncommented(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(x[1:] if x.startswith("#") and not x.startswith("##") else x for x in lines)


def test_a_starter_changes_nothing(ground: Ground) -> None:
    written = write_starter(ground.project)
    assert [path.name for path in written] == FILES
    settings = ground.load()
    assert sorted(settings.files) == sorted(written)
    assert settings == Settings(
        project=ground.project, files=settings.files, usual_keys=settings.usual_keys
    )


def test_every_example_of_a_starter_is_valid(ground: Ground) -> None:
    for path in write_starter(ground.project):
        text = uncommented(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        assert yaml.safe_load(text)
    settings = ground.load()
    assert settings.default_provider == "glm"
    assert len(settings.rules) == 4
    assert settings.permissions.rules
    assert settings.agents


def test_what_exists_is_never_overwritten(ground: Ground) -> None:
    mine = ground.write(".goent/config.yaml", "isolation: copy\n")
    assert [path.name for path in write_starter(ground.project)] == FILES[1:]
    assert mine.read_text(encoding="utf-8") == "isolation: copy\n"
    assert write_starter(ground.project) == []
