"""Reads a task as people phrase it: a request, a question, a complaint or a wish.

The learned weights come from descriptions of changes, and nobody describes a change by asking for it.
"""

import re
from typing import Final

from msgspec.structs import replace

from goent.domain.task_profile import TaskType
from goent.domain.types import Value
from goent.routing.task_vocabulary import (
    CODE,
    DATA,
    DOCUMENTS,
    FORMATTERS,
    IN_DOCUMENTS,
    LOOSE,
    NOUNS,
    ON_SCREEN,
    PHRASES,
    REVIEWED,
    SLIPS,
    STYLE,
    TESTS,
    TROUBLE,
    TYPES,
    VERBS,
    WORDING,
)

HEAD: Final = 600  # characters that are read
SENTENCES: Final = 6
TERSE: Final = 4  # words; a change is described with more
A_LINE: Final = 200  # characters; what is longer and ends in a question asks for more than that

_END: Final = re.compile(
    r"(?<=[.!?])\s+|\n+|;\s+|\s-\s"
    r"|,\s+(?:so |and |but )?(?=(?:please|pls|can you|could you|would you|kindly|\w+ (?:it|them|this|that))\b)",
    re.IGNORECASE,
)
_OPENER: Final = re.compile(
    r"(?:(?:hi|hello|hey|hiya|greetings|dear|good (?:morning|afternoon|evening))(?: there| all| team"
    r"| folks| everyone)?[,!.]"
    r"|please|pls|plz|kindly|just|now|then|so|ok|okay|also|next|first|finally|quickly|simply|maybe"
    r"|perhaps|actually|well|and|but|thanks|thank you|quick (?:one|task|thing|question)|todo|task"
    r"|(?:can|could|would|will) (?:you|u|we|someone|somebody|i ask you to)(?: be so kind (?:as to|and))?"
    r"|(?:would|do) you mind|mind|be so kind (?:as to|and)|if (?:possible|you (?:can|could|have time))"
    r"|when you (?:have|get|find) (?:a minute|a moment|time|a chance)"
    r"|(?:i|we)(?:'d| would| really)? (?:want|need|like|love)(?: you| someone)? to|i (?:ask|beg) you to"
    r"|(?:we|you|one|somebody|someone) (?:should|must|have to|need to|ought to)"
    r"|(?:it would|it'd|would) be (?:\w+ )?(?:nice|great|good|cool|helpful|lovely) (?:if (?:you|we) (?:could|can)?|to)"
    r"|(?:your|my|the|our) (?:task|job|goal|aim) is to|let's|lets|let us|help (?:me|us)(?: to)?"
    r"|go ahead and|try (?:to|and)|attempt to|go and|how about|what about|why (?:not|don't (?:we|you))"
    r"|(?:i was|i am|i'm) (?:wondering|hoping) (?:if )?you (?:could|can|would)|do you think you could"
    r"|would it be possible to|is it possible for you to|it is time to|it's time to|time to|need to"
    r"|be able to|remember to|don't forget to|be sure to|feel free to|i think (?:we should|you should)"
    r"|your task|for (?:me|us))(?:\b|(?<=[,!.]))[\s,:.!]{1,3}",
    re.IGNORECASE,
)
_SCOPED: Final = re.compile(
    r"(?:\[[^\]]{1,40}\]|\([^()]{1,40}\)|[\w./-]+\.\w{1,5}:)\s*"
    r"|(?:in|on|for|at|within|inside|under|from|when|whenever|if|after|before|once|while|to|as)\s"
    r"[^,.!?]{1,80},\s+(?:then\s+)?",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_BOUND: Final = re.compile(  # where what the verb is about ends
    r"\s(?:for|to|in|of|on|at|from|with|by|into|onto|so|that|which|where|when|whenever|if|and|then"
    r"|because|using|via|through|between|under|over|before|after|as|without|instead|against|about"
    r"|while|per|until|unless|but|or|behind|during|across|throughout|inside|within|we|you|i|yet|still|already|everywhere|explaining"
    r"|describing|showing|covering|saying|listing|containing|checking|called|named)\b"
    r"|[,;:!?()]|\.(?:\s|$)",
    re.IGNORECASE,
)
_DETERMINER: Final = re.compile(
    r"(?:the|an?|this|that|these|those|my|our|your|its|their|all|every|each|any|some|it|them|me|us)\b",
    re.IGNORECASE,
)
_ARTICLE: Final = re.compile(r"\b(?:the|an?|this|these|my|our|your|it|them|me|us)\b", re.IGNORECASE)
_NO_OBJECT: Final = re.compile(
    r"(?:the|an?|this|that|these|those|my|our|your|its|their|all|every|each|any|some|it|them|me|us|for"
    r"|to|with|in|if|whether|how|why|what|where|which|on|by|of|as|against|and|into|from|only|more|two"
    r"|three|new|unit|\d+)\b",
    re.IGNORECASE,
)
# A noun that could be a verb, with what happens to it: `Test button is hidden`.
_PREDICATE: Final = re.compile(
    r"[^,;:]{0,60}?\b(?:is|are|was|were|isn't|aren't|wasn't|does|doesn't|do not|don't|didn't|fails?|failed"
    r"|crash(?:es|ed)|can't|cannot|won't|has|have|shows|breaks|hangs|never|returns|throws|takes|gets"
    r"|keeps|should|stopped|looks)\b",
    re.IGNORECASE,
)
_SUBORDINATE: Final = re.compile(
    r"\b(?:that|which|who|when|if|so|where|because|why|how|what|whether|until|unless)\b",
    re.IGNORECASE,
)
_LATER: Final = re.compile(
    r"(?:\band|\bthen|,)\s+(?:(?:then|please|also)\s+)?(?P<clause>(?:fix|correct|repair|resolve|patch"
    r"|implement|add|update|refactor|remove|replace|rename|change|rewrite|clean|make|delete)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_QUESTION: Final = re.compile(
    r"(?:why|what|what's|whats|where|where's|which|who|who's|whose|how|how's|is|are|am|does|do|did|was"
    r"|were|has|have|had|should|shouldn't|isn't|aren't|doesn't|can|could|may|will|would|any|anything"
    r"|got|when)\b",
    re.IGNORECASE,
)
_ASKS_ANYWAY: Final = re.compile(  # a question that has lost its mark
    r"(?:why|what|what's|whats|where|where's|who|who's|how|which)\b"
    r"|(?:is|are|was|were|does|did|has)\s+(?:the|an?|this|that|these|those|there|we|you|it|our|my|any|i)\b"
    r"|(?:do|can|should|have)\s+(?:we|you|they|i|these|those|users)\b"
    r"|(?:(?:i'm|i am) (?:curious|wondering|not sure|unsure|confused)|i (?:wonder|don't|do not|can't|cannot)"
    r"(?: really| quite)?(?: understand| get| know| see| remember)?|no idea|any idea|curious)(?: about)?"
    r"\s+(?:how|why|what|where|which|when|if|whether|who)\b",
    re.IGNORECASE,
)
_JUDGEMENT: Final = re.compile(
    r"\bwhat do you think (?:of|about)\b|\b(?:any|your|some) (?:feedback|comments|thoughts|remarks"
    r"|suggestions|concerns|opinion)\b|\banything (?:wrong|off|suspicious|missing|to improve)\b"
    r"|\bsomething wrong with\b|\b(?:ready|safe|ok|okay|good|fine) (?:enough )?to (?:merge|ship|go|land)\b"
    r"|\A(?:is|are|does|do) (?:this|these|my|our|the) (?:[\w-]+ ){0,2}(?:code|function|implementation|patch"
    r"|diff|pr|changes?|regex|query|class|approach|solution|method|script|commits?|design|schema|migration)"
    r"\b.{0,60}\b(?:correct|right|ok|okay|good|safe|secure|idiomatic|clean|sound|fine|make sense)\b"
    r"|\b(?:what|how) (?:could|can|should|would) (?:this|i|we|you|it|be)\b.{0,40}\b(?:improved?|better)\b"
    r"|\bcan (?:i|we) (?:merge|ship|land)\b|\bapprove\b|\b(?:opinion|thoughts|feedback|comments) on\b|\blgtm\b|\b(?:any|some) (?:\w+ )?(?:bugs?|issues|problems"
    r"|vulnerabilities|mistakes|flaws|holes|red flags) (?:in|with)\b|\bsee any (?:\w+ )?(?:bugs?|issues"
    r"|problems|mistakes)\b|\b(?:does|do|is|are) (?:this|these|that|my|the) (?:\w+ ){0,2}(?:patch|diff|pr"
    r"|pull request|changes?|code|commits?|implementation|function|approach|solution)s? (?:look|make sense"
    r"|ok|okay|correct|right|good|safe|secure|sound|fine|clean|idiomatic|well|follow)\w*",
    re.IGNORECASE,
)
_CHAT: Final = re.compile(
    r"\W*(?:hi|hello|hey|hiya|howdy|yo|thanks?|thank you|thx|cheers|good (?:morning|afternoon|evening|night"
    r"|day|job|work)|bye|goodbye|see you|welcome|ping|pong|test|testing|are you (?:there|ready)|nice"
    r"|great|cool|ok|okay|yes|no|sorry|never mind|how are you|what's up|sup|greetings|well done)"
    r"(?:\W+(?:there|all|thanks?|thank|great|nice|job|one|good|day|morning|evening|week|you|very|so|much|a|lot|again|everyone|world|team|friend|for|your|the|help|and"
    r"|to|claude|folks|today|doing|how|are|it|going|works?))*\W*",
    re.IGNORECASE,
)
_SUM: Final = re.compile(r"[\s\d.,+*/^%()=x?!-]*\d[\s\d.,+*/^%()=x?!-]*")
_SYMPTOM: Final = re.compile(
    r"\b(?:crash\w*|fails?|failed|failing|failure|broken|breaks?|broke|bugs?|buggy|hangs?|hanging|hung|wrong"
    r"|wrongly|errors?|exceptions?|leaks?|leaking|freez\w+|froze|flickers?|flaky|stuck|deadlocks?|stale"
    r"|corrupt\w*|missing|lost|loses?|losing|regress\w+|incorrect\w*|invalid|unexpected\w*|overflow\w*"
    r"|timeouts?|times? out|timing out|not working|no longer|stopped|doesn't|don't|does not|do not|didn't"
    r"|did not|isn't|aren't|is not|are not|wasn't|can't|cannot|can not|won't|will not|never|nothing happens"
    r"|does nothing|off by|twice|undefined|null|nan|segfault\w*|panics?|throws?|5\d\d|40[0-9]|race"
    r"|ignores?|ignored|duplicates?|garbled|truncated|infinite|gets? logged out|too (?:slow|late|early"
    r"|small|large|many|often)|instead of|although|even though|unresponsive|misaligned|overlaps?"
    r"|vulnerab\w+|disappear\w*|vanish\w*|double\b|blank\b|rejects?|drops?|warns?|complains?|cut off"
    r"|mismatch\w*|inconsistent\w*|without|even if|even when|despite|dies|died|too much|slowly|empties|bad|unable|trouble|problem|issue|slow|sluggish)\b"
    r"|\w(?:Error|Exception)\b",
    re.IGNORECASE,
)
_WISH: Final = re.compile(
    r"(?:i|we|users?|customers?|people|everyone)(?:'d| would)? ?(?:really )?(?:want|like|love)s?\s+(?=\S)"
    r"|(?:[\w' -]{1,30}? )?(?:needs?|lacks?|requires?|deserves?|misses|could use)\s+(?=\S)"
    r"|(?:there (?:should|must|ought to) be|there (?:is|are) (?:no|not any)|there's no"
    r"|(?:we|it|they|(?:the|this) \w+) ha(?:s|ve) no"
    r"|(?:it would|it'd|would) be (?:\w+ )?(?:nice|great|good|cool|helpful|lovely) to (?:have|get)"
    r"|(?:new )?feature(?: request)?:?|missing:?|wanted:?|wish:?)\s+",
    re.IGNORECASE,
)
_OUGHT: Final = re.compile(r"\b(?:should|must|has to|have to|needs to|ought to)\b", re.IGNORECASE)
_UNTIDY: Final = re.compile(
    r"\b(?:hard to (?:read|follow|understand|maintain)|unreadable|too (?:long|big|complex|complicated)|messy"
    r"|convoluted|duplicated|spaghetti|copy[- ]pasted|does too much|a mess|refactor\w*|clean(?:ing|-?up))\b",
    re.IGNORECASE,
)
_FIGURES: Final = re.compile(r"\d|\bpercent\b")
_MATHS: Final = re.compile(r"\d\s*[-+*/^x%=]\s*\d|\bequation\b|\bx\b.*=", re.IGNORECASE)
_BEHAVIOUR: Final = re.compile(
    r"\b(?:when|whenever|while|before|after|each|every|in the|on the|to the|per|instead|if)\b",
    re.IGNORECASE,
)
_QUANTITY: Final = re.compile(
    r"\A(?:me |us )?(?:an? (?:\w+ )?(?:couple|few|set|bunch|number|suite|lot|handful|pair|series|list)(?: of)?|lots of"
    r"|some|several|more|many|a few|plenty of|all(?: of)?|each|every|one of)\s+",
    re.IGNORECASE,
)
_HAVING: Final = re.compile(
    r"(?:that )?(?:we|there|it|(?:the|all) \w+) (?:have|has|are|is)\s+", re.IGNORECASE
)
_AUTOMATIC: Final = re.compile(
    r"\b(?:when|whenever|automatically|every (?:day|night|week|hour|time)|after \d+|older than|on (?:save|startup"
    r"|login|logout|exit|click|submit))\b",
    re.IGNORECASE,
)
_BY_TEST: Final = re.compile(r"\b(?:with|by|in) (?:an? |some )?(?:\w+ )?tests?\b", re.IGNORECASE)
_TELLING: Final = re.compile(
    r"\b(?:explain|summari[sz]e|describe|(?:tell|show) (?:me|us) (?:what|how|why|where|which|who|when|if"
    r"|whether))\b",
    re.IGNORECASE,
)
_REPEATED: Final = re.compile(
    r"\b(?:repeated|duplicate[ds]?|duplication|copy[- ]pasted)\b", re.IGNORECASE
)
_PRONOUN: Final = re.compile(
    r"\s*(?:some|it|them|one|that|this|those|these)?\s*(?:up|out|please|now|for me|for us)?\W*",
    re.IGNORECASE,
)
_NAMES: Final[dict[TaskType, str]] = {
    "implement": "asks for something new",
    "fix": "asks to fix",
    "refactor": "asks to refactor",
    "documentation": "asks for a document",
    "test": "asks for tests",
    "format": "asks to format",
    "analyze": "asks for an answer",
    "review": "asks for a review",
}
_NOTED: Final = re.compile(r"\s\([\w./, -]{1,40}\)\s*\Z")
_RATHER: Final = re.compile(r"\b(?:but|yet|instead|whereas|not)\b", re.IGNORECASE)
_ADDITION: Final = re.compile(r"-?\d[\d.,]* (?:and|to|plus|with|from) -?\d[\d.,]*\W*")
_NEW: Final = frozenset(
    [
        "build",
        "create",
        "generate",
        "give",
        "implement",
        "make",
        "scaffold",
        "introduce",
        "prepare",
        "port",
    ]
)
_WORDS_ALONE: Final[frozenset[TaskType]] = frozenset({"analyze", "review"})
_DOABLE: Final = frozenset(
    [
        "compare",
        "calculate",
        "compute",
        "count",
        "define",
        "estimate",
        "measure",
        "plan",
        "read",
        "report",
        "run",
        "scan",
        "search",
        "show",
        "teach",
        "trace",
        "translate",
        "verify",
        "audit",
        "list",
    ]
)
_WRITABLE: Final = frozenset(
    ["define", "describe", "explain", "illustrate", "list", "outline", "see", "show"]
)
_QUALITY: Final = re.compile(
    r"\b(?:patterns?|principles?|readability|structure|naming|names|quality|maintainability|performance|speed|efficiency"
    r"|type safety|modularity|architecture|code)\b",
    re.IGNORECASE,
)
_ACCOUNT: Final = re.compile(r"\b(?:summary|overview|analysis|comparison|report)\b", re.IGNORECASE)
_FLAWS: Final = re.compile(
    r"\b(?:bugs|problems|issues|mistakes|vulnerabilit\w+|flaws|leaks|smells|holes|weaknesses|errors"
    r"|security|race conditions|injections?|anti-?patterns|edge cases)\b|\bwhat you think\b|\blooks? (?:off|odd|wrong|good|ok|right)\b|\bfeedback\b",
    re.IGNORECASE,
)
_SURFACES: Final = re.compile(
    r"\b(?:ui|app|page|site|interface|labels?|strings|screen|menu)\b", re.IGNORECASE
)


class TaskReading(Value, frozen=True, kw_only=True):
    """What a sentence asks for. `rank`: a change that is asked for says more than a complaint."""

    type: TaskType
    name: str
    rank: int
    manner: int
    verb: str = ""
    bare: bool = False  # `fix it`: what it is about stands elsewhere


NOTED, LIKELY, SAID = range(3)  # how it is worded: as above a change, or to somebody
CHAT, COMPLAINT, QUESTION, REQUEST = range(4)


def read_plainly(text: str) -> TaskReading | None:
    """What its first sentences ask for; None where nothing in them is known."""
    found = [each for sentence in _sentences(text) if (each := _sentence(sentence))]
    best = max(found, key=lambda each: each.rank, default=None)  # of equals the first
    if best is None or not best.bare:
        return best
    complaint = next((each for each in found if each.rank == COMPLAINT), None)
    if complaint is None or (best.type == "refactor" and complaint.type == "fix"):
        return best
    return replace(complaint, rank=REQUEST, manner=SAID)


def _sentences(text: str) -> list[str]:
    parts = (part.strip(" \t\"'*>-") for part in _END.split(text.lstrip()[:HEAD], SENTENCES * 2))
    return [part for part in parts if part][:SENTENCES]


def _sentence(said: str) -> TaskReading | None:
    if _CHAT.fullmatch(said):
        return TaskReading(type="analyze", name="small talk", rank=CHAT, manner=SAID)
    if _SUM.fullmatch(said):
        return TaskReading(type="analyze", name="a sum", rank=QUESTION, manner=SAID)
    if said.endswith("?") and _JUDGEMENT.search(said):
        return TaskReading(type="review", name=_NAMES["review"], rank=REQUEST, manner=SAID)
    asked = _opened(said)
    return _request(said, asked) or _question(said, asked) or _statement(said, asked)


def _opened(said: str) -> str:
    """Without what people say before they come to the point."""
    while (opener := _OPENER.match(said)) and opener.end() < len(said):
        said = said[opener.end() :]
    return said


def _request(said: str, asked: str) -> TaskReading | None:
    """A verb first, or behind where and when: `In api.py, rename …`."""
    scope = _SCOPED.match(asked)
    for clause in (asked, _opened(asked[scope.end() :]) if scope else ""):
        verb, rest = _verb(clause, said)
        if verb and not _is_noun(verb, rest):
            kind = _asked(verb, rest)
            manner = _manner(said, clause, rest)
            if kind in _WORDS_ALONE and verb not in _DOABLE and not _NOTED.search(said):
                manner = max(manner, LIKELY)
            bare = VERBS[verb] in ("fix", "make", "refactor") and bool(_PRONOUN.fullmatch(rest))
            return TaskReading(
                type=kind, name=_NAMES[kind], rank=REQUEST, manner=manner, verb=verb, bare=bare
            )
    return None


def _manner(said: str, clause: str, rest: str) -> int:
    """Whether people say it so, or write it so above a change."""
    if _NOTED.search(said):
        return NOTED
    object_named = bool(_DETERMINER.match(rest))
    if said[-1] in ".!?" or clause != said or (said[0].isupper() and _ARTICLE.search(rest)):
        return SAID
    terse = said.count(" ") < TERSE
    return LIKELY if object_named or terse or said[0].isupper() else NOTED


def _verb(clause: str, said: str) -> tuple[str, str]:
    """Its verb and the rest; empty if it begins with none. `Can we have …` asks for something."""
    for fits, verb in PHRASES:
        if found := fits(clause):
            return verb, clause[found.end() :].lstrip()
    if said != clause and clause.lower().startswith("have "):
        return "create", clause[len("have ") :]
    word = _WORD.match(clause)
    if word is None:
        return "", ""
    rest = clause[word.end() :]
    if rest[:1] not in ("", " ", ",", ".", ":", "!", "?"):
        return "", ""
    return _base(word[0].lower(), rest.lstrip()), rest.lstrip(" :")


def _base(word: str, rest: str) -> str:
    """`fixing` and, before an article, `fixes` are `fix`."""
    if word in VERBS:
        return word
    forms: tuple[str, ...] = ()
    if word.endswith("ing") and not _is_told(rest):
        forms = (word[:-3], f"{word[:-3]}e", word[:-4])
    elif _DETERMINER.match(rest):
        forms = (word[:-1], word[:-2], word[:-3]) if word.endswith(("s", "ed")) else ()
    return next((form for form in forms if form in VERBS), "")


def _is_noun(verb: str, rest: str) -> bool:
    """`Test button is hidden` asks for no test."""
    if verb not in NOUNS or _NO_OBJECT.match(rest):
        return False
    return _is_told(rest)


def _is_told(rest: str) -> bool:
    """Whether it goes on with what the word before it does."""
    told = _PREDICATE.match(rest)
    return bool(told) and not _SUBORDINATE.search(rest[: told.end()])


def _asked(verb: str, rest: str) -> TaskType:
    rest = _QUANTITY.sub("", rest, count=1)
    bound = _BOUND.search(f" {rest}")
    about = rest[: max(bound.start() - 1, 0)] if bound else rest
    match VERBS[verb]:
        case "fix":
            return _to_fix(verb, about, rest)
        case "refactor":
            return _to_refactor(verb, about, rest)
        case "make":
            return _to_make(verb, about, rest)
        case "implement":
            return _to_implement(verb, about, rest)
        case "analyze" | "look" | "review":
            return _to_consider(verb, rest)
        case "format":
            return "implement" if DATA.end(about) else "format"
        case "documentation":
            return "review" if verb == "comment" and REVIEWED.search(rest) else "documentation"
        case "test":
            return "test"


def _to_fix(verb: str, about: str, rest: str) -> TaskType:
    if verb == "ensure" and (having := _HAVING.match(rest)):
        wanted = _asked("create", rest[having.end() :])
        return "fix" if wanted == "implement" else wanted
    if verb == "solve" and _MATHS.search(rest):
        return "analyze"
    if STYLE.end(about):
        return "format"
    if DOCUMENTS.end(about) or (WORDING.within(about) and DOCUMENTS.within(rest)):
        return "documentation"
    if SLIPS.within(about) and not re.search(r"\b(?:in|on|of)\b", rest):
        return "documentation"
    return "fix"


def _to_refactor(verb: str, about: str, rest: str) -> TaskType:
    if verb == "convert" and about[:1].isdigit():
        return "analyze"
    if STYLE.end(about):
        return "format"
    if DOCUMENTS.end(about) or IN_DOCUMENTS.search(rest):
        return "documentation"
    if verb in ("remove", "eliminate", "reduce") and TROUBLE.end(about):
        return "fix"
    if _AUTOMATIC.search(rest):
        return "implement"
    if verb in ("remove", "delete", "drop", "tidy") and TESTS.end(about):
        return "test"
    return "implement" if ON_SCREEN.end(about) and not LOOSE.search(about) else "refactor"


def _to_make(verb: str, about: str, rest: str) -> TaskType:
    if _ADDITION.fullmatch(rest):
        return "analyze"
    if TESTS.end(about):
        return "test"
    if DOCUMENTS.end(about) or (IN_DOCUMENTS.search(rest) and WORDING.within(about)):
        return "documentation"
    if verb not in _NEW and IN_DOCUMENTS.search(rest):
        return "documentation"
    if verb == "make" and (STYLE.within(rest) or FORMATTERS.within(rest)):
        return "format"
    tidying = verb in ("apply", "adjust", "change", "improve", "update", "enhance")
    if (tidying or "missing" in about) and (STYLE.end(about) or FORMATTERS.within(about)):
        return "format"
    return _code_to_make(verb, about, rest)


def _code_to_make(verb: str, about: str, rest: str) -> TaskType:
    if (
        TYPES.end(about)
        or (verb in ("change", "adjust") and CODE.end(about))
        or (verb in ("improve", "enhance", "apply") and _QUALITY.search(rest))
    ):
        return "refactor"
    if verb == "write" and _ACCOUNT.search(about):
        return "analyze"
    if _REPEATED.search(rest):
        return "refactor"
    return "fix" if "missing" in about else "implement"


def _to_implement(verb: str, about: str, rest: str) -> TaskType:
    if TESTS.end(about) and verb in ("increase", "raise", "enable"):
        return "test"
    if verb in ("sort", "wrap") and re.search(r"\b(?:imports|long lines|lines)\b", about):
        return "format"
    if verb == "run":
        if FORMATTERS.within(about):
            return "format"
        return "test" if TESTS.end(about) else "implement" if _BEHAVIOUR.search(rest) else "analyze"
    if verb in ("use", "enforce") and STYLE.end(about):
        return "format"
    if verb == "use" and re.search(r"\b(?:instead of|rather than)\b", rest):
        return "refactor"
    return "documentation" if verb == "link" and IN_DOCUMENTS.search(rest) else "implement"


def _to_consider(verb: str, rest: str) -> TaskType:
    if later := _LATER.search(rest):
        found, more = _verb(later["clause"], later["clause"])
        if found:
            return _asked(found, more)
    if VERBS[verb] == "look":
        return _to_look(verb, rest)
    if VERBS[verb] == "review":
        return "review"
    if verb in ("evaluate", "assess", "examine", "inspect"):
        return "review" if REVIEWED.search(rest) else "analyze"
    return _to_answer(verb, rest)


def _to_look(verb: str, rest: str) -> TaskType:
    if re.match(r"(?:if|whether|that|how|why|what|which|where|who|when)\b", rest, re.IGNORECASE):
        return "analyze"
    if _BY_TEST.search(rest):
        return "test"
    if verb == "read" or (_TELLING.search(rest) and not _FLAWS.search(rest)):
        return "analyze"
    if verb in ("find", "identify", "spot", "locate") and not _FLAWS.search(rest):
        return "analyze"
    return "review" if REVIEWED.search(rest) or _FLAWS.search(rest) else "analyze"


def _to_answer(verb: str, rest: str) -> TaskType:
    if verb in _WRITABLE and IN_DOCUMENTS.search(rest):
        return "documentation"
    if verb == "translate" and DOCUMENTS.within(rest):
        return "documentation"
    if verb == "translate" and _SURFACES.search(rest):
        return "implement"
    if verb == "define" and re.match(r"an?\s", rest):
        return "implement"
    if verb in _DOABLE and _BEHAVIOUR.search(rest) and not _FIGURES.search(rest):
        return "analyze" if re.match(r"(?:me|us)\b", rest) else "implement"
    return "analyze"


def _question(said: str, asked: str) -> TaskReading | None:
    asks = said.endswith("?") and (
        _QUESTION.match(asked) or _QUESTION.match(said) or len(said) < A_LINE
    )
    if not asks and not _ASKS_ANYWAY.match(asked):
        return None
    kind: TaskType = "review" if _JUDGEMENT.search(said) else "analyze"
    return TaskReading(type=kind, name="asks a question", rank=QUESTION, manner=SAID)


def _statement(said: str, asked: str) -> TaskReading | None:
    """Something is missing, wrong or untidy."""
    if wish := _WISH.match(asked):
        kind = _asked("create", _DETERMINER.sub("", asked[wish.end() :], 1).lstrip())
        if kind == "implement" and asked.lower().startswith("missing"):
            kind = "fix"
        return TaskReading(type=kind, name="a wish", rank=COMPLAINT, manner=SAID)
    ought = _OUGHT.search(asked)
    subject = asked[: ought.start()] if ought else asked
    bound = _BOUND.search(subject)
    kind = _lacking(subject[: bound.start()] if bound else subject, asked, told=bool(ought))
    return (
        TaskReading(type=kind, name="a complaint", rank=COMPLAINT, manner=_manner(said, said, ""))
        if kind
        else None
    )


def _lacking(subject: str, said: str, *, told: bool) -> TaskType | None:
    if DOCUMENTS.within(subject) or (SLIPS.within(subject) and IN_DOCUMENTS.search(said)):
        return "documentation"
    if STYLE.within(subject):
        return "format"
    if _SYMPTOM.search(said) or (told and _RATHER.search(said)):
        return "fix"
    if _UNTIDY.search(said):
        return "refactor"
    return "implement" if told else None
