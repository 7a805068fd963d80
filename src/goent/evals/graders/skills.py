"""Did the agent make use of a skill?"""

from goent.evals.graders.findings import Finding, Look, all_of, failed, passed, unseen
from goent.evals.graders.settings import SkillUse, read
from goent.evals.graders.values import NO_KEYS, is_object
from goent.evals.traces import TracedCall

_PATHS = ("file_path", "filePath", "path")


def skill_trigger(look: Look) -> Finding:
    settings = read(look.spec, SkillUse)
    used = any(_uses(call, settings.skill) for _, call in look.trace.all_calls)
    text = f"Skill {settings.skill!r} was {'used' if used else f'not used{unseen(look)}'}"
    return all_of([passed(text) if used is settings.should_trigger else failed(text)])


def _uses(call: TracedCall, skill: str) -> bool:
    """Called as a skill, read as a file, or named by what a tool gave back."""
    folder = f"skills/{skill}/"
    given = call.input if is_object(call.input) else NO_KEYS
    match call.tool.casefold():
        case "skill":
            if skill in (given.get("skill"), given.get("name")):
                return True
        case "read":
            if any(folder in str(given.get(key, "")) for key in _PATHS):
                return True
        case _:
            pass
    return isinstance(call.output, str) and folder in call.output
