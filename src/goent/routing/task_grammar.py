"""Reads a task as people phrase it: a request, a question, a complaint or a wish.

Everything found here is a feature whose weight is learned from plainly worded tasks. The other weights
come from descriptions of changes, and nobody describes a change by asking for it.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from goent.domain.types import Value
from goent.routing.task_features import stem
from goent.routing.task_vocabulary import CLASSES, TAGS, TOLD, VERBS

HEAD: Final = 400  # characters that are read
SENTENCES: Final = 4
TERSE: Final = 4  # words; a change is described with more
LONGEST: Final = 24  # characters of a word; what is longer is no word
OPENING: Final = 4  # words whose kinds together begin a sentence
MOST_WORDS: Final = 8  # counted before a clause ends

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
    r"|any chance (?:you|we) (?:could|can)|fancy|your task|for (?:me|us))(?:\b|(?<=[,!.]))[\s,:.!]{1,3}",
    re.IGNORECASE,
)
_SCOPED: Final = re.compile(
    r"(?:\[[^\]]{1,40}\]|\([^()]{1,40}\)|[\w./-]+\.\w{1,5}:)\s*"
    r"|(?:in|on|for|at|within|inside|under|from|when|whenever|if|after|before|once|while|to|as)\s"
    r"(?:[^,.!?]|\.(?=\w)){1,80},\s+(?:then\s+)?",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[A-Za-z](?:[\w'/-]|\.(?=\w))*|\d[\w.,%]*\b|[^\w\s]")
_DOCUMENT: Final = re.compile(r"\.(?:mdx?|rst|adoc|txt)\Z")
_NAME: Final = re.compile(r"[\w/-]+\.[a-z]\w{0,5}\Z|[^.]*/.*\.|.*(?:[a-z][A-Z]|\w_\w)")
_ARTICLE: Final = re.compile(r"\b(?:the|an?|this|these|my|our|your|it|them|me|us)\b", re.IGNORECASE)
_NOTED: Final = re.compile(r"\s\([\w./, -]{1,40}\)\s*\Z")
_CHAT: Final = re.compile(
    r"\W*(?:hi|hello|hey|hiya|howdy|yo|thanks?|thank you|thx|cheers|good (?:morning|afternoon|evening|night"
    r"|day|job|work)|bye|goodbye|see you|welcome|ping|pong|test|testing|are you (?:there|ready)|nice"
    r"|great|cool|ok|okay|yes|no|sorry|never mind|how are you|what's up|sup|greetings|well done|perfect)"
    r"(?:\W+(?:there|all|thanks?|thank|great|nice|job|one|good|day|morning|evening|week|you|very|so|much|a|lot|again"
    r"|everyone|world|team|friend|for|your|the|help|and|to|folks|man|today|doing|how|are|it|that's|going|works?"
    r"|please|meet|now))*\W*",
    re.IGNORECASE,
)
_SUM: Final = re.compile(r"[\s\d.,+*/^%()=x?!-]*\d[\s\d.,+*/^%()=x?!-]*")
_CLAUSE_ENDS: Final = frozenset("SC.?!,;:(")
_OBJECT_ENDS: Final = frozenset("PSC.?!,;:()")

LOOKING: Final = frozenset({"look", "analyze", "review"})
CHANGING: Final = frozenset({"fix", "refactor", "test", "make", "format"})  # kinds of verbs

NOTED, LIKELY, SAID = range(3)  # how it is worded: as above a change, or to somebody
STATEMENT, QUESTION, REQUEST = range(3)


class TaskReading(Value, frozen=True, kw_only=True):
    """What a task's first sentences ask for, and the features that tell its type."""

    verb: str  # empty if it begins with none
    kind: int
    manner: int
    is_chat: bool
    features: tuple[str, ...]


class _Word(NamedTuple):
    text: str
    stem: str
    tag: str
    classes: Sequence[str]


class _Sentence(NamedTuple):
    """`words` begin with what it asks for: politeness, greetings and where or when are taken off."""

    said: str
    before: Sequence[_Word]
    words: Sequence[_Word]
    verb: str
    is_opened: bool
    is_scoped: bool

    @property
    def asks(self) -> bool:
        return self.said.endswith("?")

    @property
    def kind(self) -> int:
        if self.verb and (self.is_opened or not self.asks):
            return REQUEST
        return QUESTION if self.asks else STATEMENT


def read_plainly(text: str) -> TaskReading | None:
    """The features of its first sentences, and of which one most is asked; None if it has no word."""
    head = text.lstrip()[:HEAD].replace("\u2019", "'")
    sentences = [each for said in _split(head) if (each := _sentence(said)).words]
    if not sentences:
        return None
    main = max(sentences, key=lambda each: each.kind)  # of equals the first
    found = {f"sentences:{len(sentences)}", f"kinds:{''.join(str(s.kind) for s in sentences)}"}
    for sentence in sentences:
        found.update(_features(sentence, "" if sentence is main else "x"))
    stripped = head.strip()
    is_chat = bool(_CHAT.fullmatch(stripped) or _SUM.fullmatch(stripped))
    return TaskReading(
        verb=main.verb,
        kind=main.kind,
        manner=SAID if is_chat else _manner(main),
        is_chat=is_chat,
        features=tuple(sorted(found)),
    )


def _split(head: str) -> list[str]:
    parts = (part.strip(" \t\"'*>-") for part in _END.split(head, SENTENCES * 2))
    return [part for part in parts if part][:SENTENCES]


def _sentence(said: str) -> _Sentence:
    asked = _opened(said)
    is_opened = asked != said
    scope = _SCOPED.match(asked)
    if scope and (rest := _opened(asked[scope.end() :])):
        asked = rest
    words = [_word(word) for word in _WORD.findall(asked)]
    verb = _base(words[0].text) if words else ""
    begin = _change(words) if LOOKING.intersection(VERBS.get(verb, ())) else 0
    return _Sentence(
        said=said,
        before=words[:begin],
        words=words[begin:],
        verb=_base(words[begin].text) if words else "",
        is_opened=is_opened,
        is_scoped=scope is not None,
    )


def _change(words: Sequence[_Word]) -> int:
    """Where a change is asked for after a look: `find the cause and fix it`; 0 if it is not."""
    for i in range(1, len(words) - 1):
        is_joined = words[i].tag == "C" or words[i].text == ","
        if is_joined and CHANGING.intersection(VERBS.get(words[i + 1].text, ())):
            return i + 1
    return 0


def _opened(said: str) -> str:
    """Without what people say before they come to the point."""
    while (opener := _OPENER.match(said)) and opener.end() < len(said):
        said = said[opener.end() :]
    return said


def _word(word: str) -> _Word:
    text = word.lower()[:LONGEST]
    is_name = bool(_NAME.match(word))
    classes = CLASSES.get(text) or CLASSES.get(text.removesuffix("s"), ())
    if _DOCUMENT.search(text):
        classes = (*classes, "documents")
    elif is_name:
        classes = (*classes, "name")
    return _Word(text, stem(text), _tag(text, is_name=is_name), classes)


def _tag(text: str, *, is_name: bool) -> str:
    """What kind of word it is, by lists and endings."""
    if tag := TAGS.get(text):
        return tag
    if not text[0].isalpha():
        return "#" if text[0].isdigit() else text[0]
    if is_name:
        return "x"
    if text in VERBS:
        return "V"
    if text.endswith("s"):
        return "Z" if _tells(text) else "s"
    endings = (("n't", "N"), ("ing", "G"), ("ed", "E"), ("ly", "y"))
    return next((tag for ending, tag in endings if text.endswith(ending)), "o")


def _tells(text: str) -> bool:
    """`jumps`, `flashes` and `relies`, of verbs that are known."""
    bases = (text[:-1], text[:-2], f"{text[:-3]}y")
    return any(base in VERBS or base in TOLD for base in bases)


def _base(text: str) -> str:
    """The verb that a sentence begins with: `fixing` is `fix`."""
    if text in VERBS:
        return text
    bases = (text[:-3], f"{text[:-3]}e", text[:-4]) if text.endswith("ing") else ()
    return next((base for base in bases if base in VERBS), "")


def _manner(sentence: _Sentence) -> int:
    """Whether people say it so, or write it so above a change."""
    said, words = sentence.said, sentence.words
    if _NOTED.search(said):
        return NOTED
    is_article_used = said[0].isupper() and _ARTICLE.search(said)
    if said[-1] in ".!?" or sentence.is_opened or sentence.is_scoped or is_article_used:
        return SAID
    has_object = len(words) > 1 and words[1].tag == "D"
    return LIKELY if has_object or said.count(" ") < TERSE or said[0].isupper() else NOTED


def _features(sentence: _Sentence, mark: str) -> Iterator[str]:
    """`mark` tells the sentence in which most is asked from those around it."""
    words = sentence.words
    kinds = VERBS.get(sentence.verb, ("-",))
    asks = "?" if sentence.asks else ""
    yield from (f"{mark}{name}" for name in _beginning(sentence, kinds, asks))
    yield from (f"{mark}{name}" for name in _about(sentence, kinds, asks))
    yield from (f"{mark}{name}" for name in _form(words))
    yield from (f"{mark}{name}" for name in _later(words, sentence.verb, kinds))
    for word in (*sentence.before, *words):
        yield f"w:{word.text}"
        yield f"m:{word.stem}"
    yield from (f"before:{word.stem}" for word in sentence.before)
    for word, following in pairwise(words):
        yield f"b:{word.text} {following.text}"


def _beginning(sentence: _Sentence, kinds: Sequence[str], asks: str) -> Iterator[str]:
    words, opened = sentence.words, "o" if sentence.is_opened else ""
    first, second = words[0], words[1].tag if len(words) > 1 else ""
    if sentence.is_scoped:
        yield "scoped"
    yield f"asks:{asks}{opened}"
    yield f"asks:{asks}{opened} {first.text}"
    yield f"f:{first.text}"
    yield f"f:{first.stem}-"
    yield f"f2:{' '.join(word.text for word in words[:2])}"
    yield f"f3:{' '.join(word.text for word in words[:3])}"
    yield f"v:{sentence.verb}{asks}"
    for kind in kinds:
        yield f"V:{kind}{asks}"
        yield f"V:{kind}{opened} {second}"
    last = words[-1] if words[-1].text[0].isalnum() or len(words) == 1 else words[-2]
    yield f"l:{last.text}"


def _about(sentence: _Sentence, kinds: Sequence[str], asks: str) -> Iterator[str]:
    """The classes of what the verb is about, of the words before that, and of the rest."""
    words, verb = sentence.words, sentence.verb
    begin = 1 if verb else 0
    end = next((i for i in range(1, len(words)) if words[i].tag in _OBJECT_ENDS), len(words))
    about = [word for word in words[1:end] if word.tag != "D"]
    by = verb or words[0].stem
    if about:
        yield f"o:{about[-1].stem}"
        yield f"vo:{by} {about[-1].stem}"
        for name in about[-1].classes or ("-",):
            yield f"E:{name} {by}"
            yield from (f"E:{name} {kind}{asks}" for kind in kinds)
    if verb and end < len(words):
        yield f"j:{words[end].text} {kinds[0]}"
    within = {("A", name) for word in about[:-1] for name in word.classes}
    rest = {("R", name) for word in words[end if verb else begin :] for name in word.classes}
    for place, name in within | rest:
        yield f"{place}:{name} {verb}"
        yield f"W:{name}"
        yield from (f"{place}:{name} {kind}{asks}" for kind in kinds)


def _form(words: Sequence[_Word]) -> Iterator[str]:
    """The kinds of words in their order, and whether something is told of a subject."""
    tags = "".join(word.tag for word in words)
    for length in range(1, OPENING + 1):
        yield f"t:{tags[:length]}"
    for i in range(len(tags) - 1):
        yield f"tb:{tags[i : i + 2]}"
        yield f"tt:{tags[i : i + 3]}"
    end = next((i for i in range(1, len(tags)) if tags[i] in _CLAUSE_ENDS), len(tags))
    told = set(tags[1:end])
    yield from (f"th:{tag} {tags[0]}" for tag in told & set("ZAMNE"))
    if not (told | {tags[0]}) & set("ZAMV"):
        yield "nothing told"
    yield f"clause:{min(end, MOST_WORDS)} {tags[0]}"
    yield f"words:{min(len(tags) // 2, MOST_WORDS)}"
    told_of = "V" if tags[0] == "V" else "told" if told & set("ZAMN") else "named"
    names = {name for word in words for name in word.classes}
    yield from (f"K:{told_of} {name}" for name in names)


def _later(words: Sequence[_Word], verb: str, kinds: Sequence[str]) -> Iterator[str]:
    """What is asked for behind an `and` or a comma."""
    for word, following in pairwise(words):
        if (word.tag == "C" or word.text == ",") and (then := _base(following.text)):
            yield f"then:{then} {verb}"
            yield from (f"then:{kind} {kinds[0]}" for kind in VERBS[then])
