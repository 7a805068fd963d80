"""Lists the words of plainly phrased tasks: verbs by what they ask for, nouns by kind."""

import re
from typing import Final, Literal

from goent.domain.task_profile import TaskType

# `make`: what is made or changed tells the type. `look`: whether it is a review depends on at what.
Asking = TaskType | Literal["make", "look"]

_VERBS: Final[dict[Asking, str]] = {
    "fix": """guard heal stabilise stabilize survive tolerate unfreeze workaround address avoid correct cure debug ensure fix handle hotfix mend patch prevent recover
        repair resolve rescue restore reproduce solve stop tackle troubleshoot unblock unbreak undo""",
    "refactor": """centralise centralize combine condense detangle disentangle generalise generalize hoist reuse
        standardise standardize abstract break collapse consolidate convert decompose decouple dedupe deduplicate delete
        drop eliminate encapsulate extract factor flatten inline isolate merge migrate modernise
        modernize modularise modularize move optimise optimize port prune reduce refactor relocate
        remove rename reorganise reorganize replace restructure rework rewrite separate shorten
        shrink simplify split streamline substitute switch tidy transform turn unify untangle""",
    "documentation": "annotate detail transcribe clarify comment document draft mention note",
    "test": "assert exercise cover fuzz mock parametrise parametrize stub test unit-test",
    "format": "auto-format autoformat dedent beautify format indent lint prettify re-indent reformat reindent unindent",
    "review": "approve audit judge rate sanity-check scrutinise scrutinize critique proofread review vet",
    "analyze": """characterise characterize debate deduce demystify discover imagine infer interpret justify
        pick pinpoint quiz quote rank recall study survey talk wonder advise analyse analyze answer assess benchmark brainstorm calculate compare compute
        contrast count debate define describe determine diagnose discuss divide elaborate enumerate estimate
        evaluate examine explain explore figure greet grep guess illustrate investigate know
        learn list locate measure multiply outline paraphrase plan predict profile propose recap recite
        recommend remind repeat reply report research respond say search show sing spell subtract suggest sum
        summarise summarize teach tell think trace translate understand""",
    "look": "check find go identify inspect look read scan spot skim verify",
    "implement": """animate archive ask autosave back backup bind bookmark broadcast clear close collect compress
        confirm containerize crop debounce decode dockerize embed encode expire extend favour flag forward
        grant indicate inject lazy-load lock mark mask minify navigate override package pause permit prefill
        preload preview prioritise prioritize process protect query rate-limit receive refresh remember
        replicate request reserve restrict resume rotate scrape seed select serialize share shuffle simulate
        start suspend trim truncate unlock wait zoom activate code program prototype allow append attach automate block buffer cache cap configure connect
        customise customize deactivate decrease deploy detect develop disable display download emit
        enable encrypt enforce export expose fetch filter group hash hide highlight hook implement
        import increase initialise initialize install integrate invalidate let limit link load
        localise localize log lower notify open paginate parse persist pin play poll populate post
        print produce prompt publish push queue raise record redirect redact register reject
        render require reset resize retry return round route run sanitise sanitize save scale schedule
        send serve set skip sort store stream style submit subscribe support swap sync tag throttle
        toggle track trigger upload use validate warn watch wire wrap""",
    "make": """add adjust amend append apply build bump change complete create design edit enhance
        expand extend finish generate give implement improve include insert introduce make modify
        prepare provide put rebuild redo revise scaffold update upgrade write""",
}
VERBS: Final[dict[str, Asking]] = {
    word: asking for asking, words in _VERBS.items() for word in words.split()
}

# Several words that together are one of the verbs.
_PHRASES: Final[tuple[tuple[str, str], ...]] = (
    (
        "review",
        r"(?:give|share|provide|leave)(?: me| us)? (?:\w+ ){0,3}(?:feedback|review|critique|opinion|thoughts|comments)",
    ),
    (
        "review",
        r"give (?=.{1,50} (?:review|feedback|critique|once-over)\b)|(?:do|perform|conduct|run) an? (?:[\w-]+ ){0,3}(?:review|audit|check|inspection)|(?:code|security)[- ]review",
    ),
    (
        "test",
        r"(?:stress|smoke|load|unit|snapshot|regression|integration|fuzz|end-to-end|e2e)[- ]test",
    ),
    ("prettify", r"pretty[- ]?print"),
    ("correct", r"spell[- ]?check|correct the spelling"),
    ("remove", r"(?:get rid|dispose) of|take out|throw (?:out|away)|strip(?: out)?"),
    ("tidy", r"clean(?: up)?|tidy(?: up)?"),
    ("split", r"break up|break (?=.{1,60} (?:into|up|apart)\b)|cut up"),
    ("extract", r"pull out|factor out|pull (?=.{1,60} (?:out|into)\b)"),
    (
        "optimize",
        r"speed (?=(?:\S+ ){1,6}up\b)|speed up|make (?=.{1,60} (?:faster|quicker|cheaper|leaner)\b)",
    ),
    (
        "simplify",
        r"make (?=.{1,60} (?:less \w+|tidier|testable|reusable|generic|more readable|more modular|more idiomatic|cleaner|simpler|shorter|readable|easier to (?:read|follow|understand|maintain|test))\b)",
    ),
    (
        "fix",
        r"make (?=.{1,60} (?:pass|green|work|stable|reliable|deterministic|robust|thread[- ]?safe|stop|not|no longer|never|survive)\b)",
    ),
    (
        "handle",
        r"(?:sort|iron) (?=(?:\S+ ){1,5}out\b)|work around|(?:sort|iron) out|(?:deal|cope) with|take care of",
    ),
    ("fix", r"get (?=.{1,60} (?:working|to work|passing|to pass|green)\b)"),
    ("restore", r"bring back|roll back|revert|reproduce"),
    ("ensure", r"make (?:sure|certain)"),
    (
        "create",
        r"set (?=(?:\S+ ){1,6}up\b)|get(?= (?:an?|some|more)\b)|set up|put together|spin up|get (?:me|us)",
    ),
    ("connect", r"hook up"),
    (
        "toggle",
        r"(?:turn|switch) (?=(?:\S+ ){1,5}(?:on|off)\b)|comment (?=(?:\S+ ){1,5}out\b)|(?:turn|switch) (?:on|off)|comment out",
    ),
    ("document", r"write (?:up|down)|describe (?=.{1,80} (?:README|docs?|documentation)\b)"),
    ("investigate", r"(?:find|figure|work) out|look up|dig into|look into|get to the bottom of"),
    (
        "explain",
        r"walk (?:me|us) through|break down|(?:give|get|show|write|send) (?:me |us )?an? (?:\w+ )?(?:overview|summary|explanation|list|breakdown|rundown|estimate|idea|hint|tip)(?= (?:of|on|for|about|how)\b)",
    ),
    (
        "say",
        r"sum up|(?:write|tell|sing) (?:me |us )?an? (?:\w+ )?(?:joke|poem|haiku|story|limerick|song)",
    ),
    ("suggest", r"come up with|give (?:me|us)"),
    (
        "look",
        r"(?:take|have) an? (?:\w+ )?look(?: at| over| through)?|(?:look|go|read|run|glance) (?:at|over|through|for)|double[- ]check",
    ),
)
PHRASES: Final = tuple(
    (re.compile(rf"(?:{words})\b", re.IGNORECASE).match, verb) for verb, words in _PHRASES
)


class Nouns:
    """Names of one sort of things."""

    def __init__(self, words: str) -> None:
        noun = rf"(?<![\w/.-])(?:{words})(?![\w-])"
        self.within = re.compile(noun, re.IGNORECASE).search
        self.end = re.compile(rf"{noun}\s*\Z", re.IGNORECASE).search
        """At the end of what a verb is about: `a test`, but not `a test button`."""


TESTS: Final = Nouns(
    r"(?:unit|integration|regression|e2e|end-to-end|smoke|load|property|snapshot|fuzz)?-?"
    r"(?:tests?|testing|test[- ](?:cases?|suites?|coverage|fixtures?|files?|data)|unittests?|coverage"
    r"|fixtures?|mocks?|testcases?)"
)
DOCUMENTS: Final = Nouns(
    r"read-?me(?:\.\w+)?|\S+\.(?:mdx?|rst|adoc)|docs?|documentation|docstrings?|doc comments?"
    r"|change-?log|comments?|tutorials?|guides?|manual|javadocs?|jsdocs?|tsdocs?|wiki|release notes"
    r"|how-?tos?|faqs?|walkthroughs?|instructions|man ?pages?|runbooks?|cheat ?sheets?|adrs?|rfcs?|decision records?"
    r"|glossary|quick-?start|references?|blog posts?|migration notes|user stories|write-?ups?"
    r"|(?:change-?log|readme|docs?|documentation|wiki) (?:entry|entries|sections?|pages?|notes?|files?)"
    r"|code examples?|usage examples?|(?:contributing|licen[cs]e|security policy|code of conduct)(?:\.\w+| file| guide| section)?"
)
STYLE: Final = Nouns(
    r"(?:code )?formatting|indentation|indents?|(?:trailing )?(?:white-?space|spaces|commas)|lint"
    r"|linting|linters?|(?:code )?style|(?:lint\w*|style|formatting|eslint|flake8|ruff|pylint|black"
    r"|prettier|gofmt|rustfmt|clippy|rubocop|stylelint|checkstyle|pep ?-?8|pycodestyle|biome)"
    r" (?:\w+ )?(?:errors?|warnings?|issues?|violations?|problems?|complaints?|fixes)|line endings"
    r"|blank lines?|empty lines?|semi-?colons?|quotes|quotation marks|line lengths?|long lines|tabs"
    r"|import order|crlf|pep ?-?8|tabs (?:to|into|with|by) spaces|spaces (?:to|into|with|by) tabs"
    r"|brace style|casing"
)
FORMATTERS: Final = Nouns(
    r"black|prettier|eslint|ruff|isort|gofmt|go fmt|rustfmt|cargo fmt|clang-format|biome|flake8|pylint"
    r"|rubocop|stylelint|golangci-lint|shellcheck|autopep8|yapf|dprint|oxfmt|terraform fmt|shfmt"
    r"|ktlint|swiftformat|google-java-format|mix format|standardjs|formatters?|linters?|auto-?fix"
)
TYPES: Final = Nouns(r"type[- ](?:hints?|annotations?)|typing")
WORDING: Final = Nouns(
    r"typos?|spelling|grammar|wording|misspell\w*|mis-?spelt|broken links?|dead links?|phrasing"
    r"|spelling mistakes?|links?|sentences?|paragraphs?|sections?|headings?|examples?|badges?|notes?"
    r"|table of contents|entry|entries|screenshots?|diagrams?|descriptions?|chapters?|pages?|lines?"
)
SLIPS: Final = Nouns(
    r"typos?|spelling(?: mistakes?| errors?)?|grammar|misspell\w*|mis-?spelt|punctuation|wording"
)
IN_DOCUMENTS: Final = re.compile(
    r"\b(?:in|into|to|of|from|on|inside|for|at)\s+(?:[\w'-]+\s+){0,4}?(?<![\w/.-])(?:read-?me(?:\.\w+)?"
    r"|docs?|documentation|docstrings?|change-?log(?:\.\w+)?|wiki|guides?|tutorials?|manual"
    r"|javadocs?|faq|release notes|contributing(?:\.\w+)?|license|\S+\.(?:mdx?|rst|adoc)"
    r"|docs/\S*)(?![\w/-])",
    re.IGNORECASE,
)
ON_SCREEN: Final = Nouns(
    r"buttons?|menus?|sidebar|logo|icons?|headers?|footers?|banners?|pop-?ups?|dialogs?|labels?"
    r"|colou?rs?|favicons?|pictures?|images?|tooltips?|placeholders?|spinners?|progress bars?|modals?|drop-?downs?|checkbox(?:es)?|forms?|charts?|cards?|avatars?|background|cursor|animations?|themes?|text|fonts?|nav(?:igation|bar)?|tabs?"
)
DATA: Final = Nouns(
    r"dates?|times?|timestamps?|numbers?|currenc(?:y|ies)|prices?|amounts?|messages?|phone|durations?"
    r"|values?|bytes|address(?:es)?|results?|response|output|names?|totals?|percentages?"
)
TROUBLE: Final = Nouns(
    r"crash(?:es)?|bugs?|errors?|leaks?|warnings?|races?|race conditions?|deadlocks?|exceptions?|flicker"
    r"|flickering|lag|failures?|issues?|problems?|regressions?|vulnerabilit(?:y|ies)|glitch(?:es)?|panics?"
    r"|freezes|timeouts"
)
CODE: Final = Nouns(
    r"declarations|functions|methods|classes|calls|loops|callbacks|names|naming|structure|signatures"
    r"|inheritance|hierarchy|modules"
)
LOOSE: Final = re.compile(  # what is removed or tidied without anybody noticing
    r"\b(?:unused|dead|duplicat\w+|redundant|obsolete|unnecessary|legacy|deprecated|debug|commented)\b",
    re.IGNORECASE,
)
REVIEWED: Final = re.compile(
    r"\b(?:pr|prs|pull[- ]requests?|merge[- ]requests?|mr|patch|diff|change(?:s|set)?|commits?|branch"
    r"|my \w+|(?:this|the|our|that) (?:\w+ )?(?:code|implementation|function|class|design|snippet|regex|query|script|method|schema|migration|component|algorithm|handler|approach|solution|sql|config)"
    r"|bugs?|problems?|issues|mistakes|vulnerabilit\w+|flaws?|leaks?|smells?|security|race conditions?"
    r"|injections?|correctness|edge cases|best practices|code quality|holes?|weaknesses)\b",
    re.IGNORECASE,
)
NOUNS: Final = frozenset(
    [
        "access",
        "block",
        "buffer",
        "cache",
        "cap",
        "change",
        "check",
        "comment",
        "debug",
        "deploy",
        "design",
        "display",
        "document",
        "download",
        "draft",
        "edit",
        "estimate",
        "export",
        "figure",
        "filter",
        "finish",
        "fix",
        "format",
        "group",
        "hash",
        "help",
        "hook",
        "import",
        "input",
        "limit",
        "link",
        "lint",
        "list",
        "load",
        "log",
        "look",
        "measure",
        "mention",
        "merge",
        "mock",
        "move",
        "name",
        "note",
        "open",
        "order",
        "parse",
        "patch",
        "pin",
        "plan",
        "play",
        "poll",
        "port",
        "post",
        "print",
        "profile",
        "prompt",
        "publish",
        "push",
        "queue",
        "read",
        "record",
        "register",
        "release",
        "render",
        "repeat",
        "reply",
        "report",
        "research",
        "reset",
        "resize",
        "respond",
        "retry",
        "return",
        "review",
        "route",
        "run",
        "save",
        "scale",
        "scan",
        "schedule",
        "search",
        "send",
        "set",
        "show",
        "skip",
        "sort",
        "split",
        "start",
        "stop",
        "store",
        "stream",
        "style",
        "stub",
        "submit",
        "support",
        "swap",
        "switch",
        "sync",
        "tag",
        "test",
        "think",
        "throttle",
        "toggle",
        "trace",
        "track",
        "transform",
        "trigger",
        "turn",
        "update",
        "upgrade",
        "upload",
        "use",
        "validate",
        "warn",
        "watch",
        "wire",
        "wrap",
    ]
)
"""Verbs that are nouns as well."""
