"""Scripted models and workers, shipped for go-ent's own tests, its demo and your tests."""

from goent.testing.hermetic_opencode import hermetic_env, opencode_config
from goent.testing.script import (
    Case,
    Fault,
    Script,
    ScriptedProvider,
    Step,
    anthropic,
    call,
    case,
    fail,
    load_script,
    openai,
    say,
)
from goent.testing.scripted_calls import Call, Conversation, Message, ToolCall
from goent.testing.scripted_server import ScriptedModels

__all__ = [
    "Call",
    "Case",
    "Conversation",
    "Fault",
    "Message",
    "Script",
    "ScriptedModels",
    "ScriptedProvider",
    "Step",
    "ToolCall",
    "anthropic",
    "call",
    "case",
    "fail",
    "hermetic_env",
    "load_script",
    "openai",
    "opencode_config",
    "say",
]
