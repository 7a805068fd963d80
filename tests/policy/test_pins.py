from pathlib import Path

import pytest

from goent.domain.errors import NoRoute
from goent.domain.settings import Backend, Settings
from goent.domain.types import Pin, Provider
from goent.routing.pins import choose_pinned

GLM = Provider(name="glm", backend="moonshot", model="glm-4")
KIMI = Provider(name="moonshot/kimi-k2", backend="moonshot", model="kimi-k2")
CODER = Provider(name="deepseek/deepseek-coder", backend="deepseek", model="deepseek-coder")


def settings(*providers: Provider, default: str | None = None) -> Settings:
    backends = {p.backend: Backend(id=p.backend) for p in providers}
    return Settings(
        project=Path("/project"), providers=providers, backends=backends, default_provider=default
    )


ALL = settings(GLM, KIMI, CODER, default="glm")


@pytest.mark.parametrize(
    ("pin", "model"),
    [
        (Pin(), "moonshot/glm-4"),
        (Pin(provider="glm"), "moonshot/glm-4"),
        (Pin(provider="deepseek"), "deepseek/deepseek-coder"),
        (Pin(provider="moonshot", model="kimi-k2"), "moonshot/kimi-k2"),
        (Pin(provider="moonshot", model="moonshot/kimi-k2"), "moonshot/kimi-k2"),
        (Pin(model="moonshot/kimi-k2"), "moonshot/kimi-k2"),
        (Pin(model="kimi-k2"), "moonshot/kimi-k2"),
        (Pin(provider="glm", model="kimi-k2"), "moonshot/kimi-k2"),
        (Pin(provider="moonshot", model="glm"), "moonshot/glm-4"),
        (Pin(provider="deepseek", model="glm"), "deepseek/glm"),
        (Pin(provider="deepseek", model="not-listed-yet"), "deepseek/not-listed-yet"),
        (Pin(provider="deepseek", model="org/with-slash"), "deepseek/org/with-slash"),
    ],
)
def test_a_pin_is_obeyed(pin: Pin, model: str) -> None:
    assert choose_pinned(pin, ALL, ["acp"]).provider.opencode_model == model


@pytest.mark.parametrize(
    ("pin", "reason"),
    [
        (Pin(provider="nope"), "unknown provider 'nope'; there are: glm"),
        (Pin(provider="nope", model="x"), "unknown provider 'nope'"),
        (Pin(model="gpt-0"), "no provider offers model 'gpt-0'"),
        (Pin(method="serve"), "method 'serve' is not available"),
    ],
)
def test_a_pin_that_cannot_be_obeyed_is_refused_and_never_bent(pin: Pin, reason: str) -> None:
    with pytest.raises(NoRoute) as refusal:
        choose_pinned(pin, ALL, ["acp"])
    assert reason in str(refusal.value)


def test_a_backend_with_several_models_wants_a_model() -> None:
    with pytest.raises(NoRoute, match="pass `model` \\(glm-4, kimi-k2\\)"):
        choose_pinned(Pin(provider="moonshot"), settings(GLM, KIMI), ["acp"])


def test_a_model_that_two_backends_offer_wants_a_provider() -> None:
    twin = Provider(name="twin", backend="other", model="glm-4")
    with pytest.raises(NoRoute, match="glm, twin: pass `provider`"):
        choose_pinned(Pin(model="glm-4"), settings(GLM, twin), ["acp"])


@pytest.mark.parametrize("pin", [Pin(), Pin(provider="kimi"), Pin(model="kimi-k2")])
def test_without_any_provider_the_remedy_is_named(pin: Pin) -> None:
    with pytest.raises(NoRoute, match="no provider is configured: run `go-ent init`"):
        choose_pinned(pin, settings(), ["acp"])


def test_without_a_default_the_choices_are_named() -> None:
    with pytest.raises(NoRoute, match="default_provider"):
        choose_pinned(Pin(), settings(GLM, CODER), ["acp"])


def test_a_method_that_only_the_file_prefers_gives_way() -> None:
    quick = Provider(name="quick", backend="moonshot", model="glm-4", method="cli")
    route = choose_pinned(Pin(provider="quick"), settings(quick), ["acp"])
    assert route.method == "acp" and "cli is not available" in route.reason
