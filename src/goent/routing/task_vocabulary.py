"""Lists the words of plainly phrased tasks: verbs by what they ask for, nouns by kind.

A class is a feature, not a verdict: what each one counts for, alone and beside the others, is learned.
"""

from typing import Final

_VERBS: Final[dict[str, str]] = {
    "fix": """address avoid catch cease correct counteract cure deal debug ensure escape fix free guard handle
        heal hold hotfix iron mend neutralise neutralize patch plug prevent recover rectify remedy repair
        reproduce rescue resolve restore reverse revert sanitise sanitize shut silence solve squash
        stabilise stabilize stop straighten suppress survive tackle tolerate troubleshoot unblock unbreak
        undo unfreeze unstick workaround""",
    "refactor": """abstract boil break carve centralise centralize chop clean collapse combine condense consolidate
        convert decompose decouple dedupe deduplicate delete detach detangle disentangle dissolve distil
        ditch divide drop eliminate encapsulate eradicate extract factor flatten fold generalise generalize
        halve harmonise hoist inline isolate kill lift loosen memoise memoize merge migrate modernise
        modernize modularise modularize move narrow normalise normalize nuke optimise optimize overhaul
        parallelise parallelize pare port prune pull purge rationalise rationalize rearrange recast
        recombine reduce refactor regroup rejig relocate remodel remove rename reorder reorganise reorganize
        replace restructure retire retype reuse revamp rework rewrite rip scrap segregate separate share
        shorten shrink simplify slim speed split standardise standardize streamline subdivide substitute
        switch tidy transform transplant trim turn unify unpick untangle vectorise vectorize weed""",
    "documentation": """actualize annotate author catalogue chronicle cite clarify comment describe detail document draft
        elaborate explain flesh illustrate jot mention note outline pen polish proofread reflect rephrase
        reword specify spell state touch transcribe""",
    "test": """assert automate bombard cover demonstrate execute exercise fuzz hammer mock parametrise parametrize
        probe prove simulate stub test try unit-test verify""",
    "format": """align arrange auto-format autoformat beautify capitalise capitalize dedent format harmonise indent
        left-align lint lowercase neaten normalise normalize order prettify re-indent reflow reformat
        regularise reindent space straighten unindent uppercase wrap""",
    "review": """appraise approve assess audit cast challenge check comment criticise criticize critique cross-check
        dissect evaluate examine grade inspect judge nitpick peer-review proofread rate review roast
        sanity-check screen scrutinise scrutinize vet weigh""",
    "analyze": """advise analyse analyze answer ascertain benchmark bisect brainstorm brief calculate characterise
        characterize clarify compare compute confirm contrast convert count crunch debate deduce define
        demystify describe determine diagnose dig discover discuss divide echo educate elucidate enlighten
        enumerate estimate evaluate explain explore figure flip gather gauge greet grep guess hunt identify
        illustrate imagine infer inform interpret introduce invent inventory investigate itemise itemize
        justify know learn list locate map measure multiply name outline paraphrase peek pick pinpoint plan
        ponder predict profile propose quantify quiz quote rank recall recap recite recommend remind repeat
        reply report research respond roll say search shed show sing sketch speculate spell study subtract
        suggest sum summarise summarize survey talk tally teach tell think trace translate triage understand
        unravel weigh wonder""",
    "look": "check find glance go look read scan see skim spot verify",
    "implement": """accept activate adopt alert allow animate append archive arrange ask assemble attach augment
        autocomplete automate autosave back backup batch bind blink block bookmark broadcast buffer bump
        bundle cache calibrate cap cast celebrate center centre change clear clone close code collect color
        colour compress configure confirm connect containerise containerize control craft crank crop
        crossfade customise customize cut deactivate debounce decode decorate decrease deliver deploy
        deprecate derive detect develop dim disable dispatch display dockerise dockerize double downgrade
        download draw elevate embed emit enable encode encrypt enforce enlarge enrich equip establish expire
        export expose extend fade fetch fill filter fit flag flash formulate forward furnish gate generate
        give grant group hand hash have hide highlight honour hook import incorporate increase indicate
        initialise initialize inject install integrate invalidate keep launch lazy-load lengthen let limit
        link load localise localize lock log lower mark mask minify mirror monitor move navigate notify
        number offer open outfit override package paginate parallelise parse pause permit persist pin place
        play plot point poll populate post prefill preload present preset preview print prioritise
        prioritize process produce program prompt propagate protect prototype provide provision publish push
        put query queue raise randomise realise realize recolor recolour record redact redirect refill
        refresh register reject relax release remember render repeat replicate request require reserve reset
        resize restrict resume retrieve retry return rotate round route run save scale schedule scrape seed
        select send serialize serve set ship shuffle simulate skip slow sort spawn spin spread stack stamp
        start store stream style submit subscribe summon supply support surface suspend swap sync
        synchronise synchronize tag teach throttle tint toggle track train transcode trigger truncate tweak
        unlock upgrade upload upscale use validate vary vibrate visualise visualize wait wake warn watch
        water welcome whip widen wire write zip zoom""",
    "make": """add adjust amend apply bring build change compile complete compose construct create design do edit
        enhance expand extend finish generate get implement improve include insert introduce lay make modify
        prepare provide put rebuild redo revise scaffold update upgrade write""",
}

_WORDS: Final[dict[str, str]] = {
    "tests": """test tests testing testcase testcases unittest unittests coverage fixture fixtures mock mocks stub
        stubs spec specs suite e2e pytest jest junit playwright cypress snapshot snapshots assertion assertions
        test-case test-suite""",
    "documents": """readme docs doc documentation docstring docstrings changelog comment comments tutorial
        tutorials guide guides manual manuals javadoc jsdoc kdoc tsdoc doxygen wiki notes how-to howto faq
        walkthrough instructions runbook runbooks cheatsheet adr adrs rfc glossary quickstart quick-start reference
        handbook contributing license licence chapter guideline guidelines write-up post-mortem""",
    "style": """formatting indentation indent indents whitespace lint linting linter style line-endings semicolon
        semicolons quotes tabs spaces pep8 pep crlf casing brace braces newline newlines blanks spacing
        style-guide""",
    "formatters": """black prettier eslint ruff isort gofmt goimports rustfmt clang-format biome flake8 pylint
        rubocop stylelint golangci-lint shellcheck autopep8 yapf dprint shfmt ktlint swiftformat swiftlint clippy
        formatter sqlfluff spotless checkstyle pycodestyle yamllint hadolint cargo-fmt autofix""",
    "slips": "typo typos spelling grammar misspelt misspelled wording punctuation",
    "code": """code codebase function functions method methods class classes module modules variable variables
        constant constants helper helpers wrapper wrappers loop loops type types tuple enum interface interfaces
        adapter layer abstraction package packages component components callback callbacks promise promises struct
        object objects dict dictionary macro macros singleton hook hooks controller controllers service services
        handler handlers parameter parameters argument arguments factory mixin decorator closure comprehension
        generator namespace library subclass model models template templates repository statement expression
        condition conditions logic hierarchy signature literal literals switch structure architecture naming
        nesting inheritance composition duplication complexity coupling generics internals utils util utilities
        state globals global getter setter import imports dataclass regex closure middleware script scripts
        f-strings duplicates copies folder folders file files async/await project""",
    "screen": """page pages screen screens button buttons menu menus form forms field fields box boxes icon icons
        logo image images photo photos picture pictures table column columns chart charts dialog popup pop-up modal
        tooltip banner header footer sidebar navbar dashboard text texts label labels title font fonts colour
        color colours colors theme background animation widget tab view avatar avatars slider dropdown checkbox
        placeholder spinner card cards link links""",
    "product": """user users customer customers admin admins member members visitor visitors guest guests player
        players patient patients people client clients driver drivers teacher teachers account accounts email
        emails mail mails message messages notification notifications order orders invoice invoices payment
        payments cart price prices password passwords login logout signup profile search upload uploads download
        downloads export exports report reports map list game level sound setting settings option options feature
        features session sessions language languages comment""",
    "ground": """server database db api endpoint port ci pipeline docker container cluster workflow build deploy
        deployment version dependency dependencies python node react django timeout limit flag config
        configuration cache queue log logs logging job cron environment""",
    "change": """pr prs pull-request mr patch diff diffs commit commits branch changes change changeset
        merge-request implementation solution code-review""",
    "trouble": """crash crashes bug bugs error errors leak leaks warning warnings race races deadlock deadlocks
        exception exceptions flicker flickering failure failures issue issues problem problems regression
        vulnerability vulnerabilities glitch panic freeze hole holes loophole overflow segfault""",
    "symptom": """broken breaks wrong wrongly fails fail failing failed hangs hang stuck missing lost loses lose
        incorrect invalid unexpected twice undefined null nan empty blank slow slowly laggy stale corrupt
        truncated garbled infinite forever unresponsive misaligned overlaps overlap disappears vanishes ignored
        ignores stops stopped crashing crashed hanging freezes froze unable unreachable unusable unreadable red
        upside-down flaky dead double duplicate duplicated inconsistent outdated late drops rejects without
        although instead despite times 500 404 403 401 502 too
        anymore""",
    "loose": "unused dead redundant obsolete unnecessary legacy deprecated commented-out old duplicate duplicated",
    "better": """cleaner simpler shorter faster easier readable testable reusable generic maintainable modular
        pythonic idiomatic smaller less tidier leaner readability maintainability performance speed efficiency
        better separate independent consistent common shared single""",
    "untidy": "messy mess spaghetti unreadable convoluted complicated copy-paste huge ugly long monolithic god",
    "verdict": """good bad correct right ok okay fine sound secure safe readable idiomatic clean well efficient
        improve improved mistakes mistake flaws flaw smells feedback opinion opinions thoughts thought critique
        weaknesses weakness merged merge lgtm risky quality vulnerabilities security""",
}

_TAGS: Final[dict[str, str]] = {
    "D": """the a an this that these those my our your its their his her all every each any some no another both
        several many""",
    "P": """for to in of on at from with by into onto via through between under over before after as against
        about while per until behind during across inside within like than off up down out""",
    "I": """i we you he she it they me us them one somebody someone nobody people everyone anyone who which it's
        i'm""",
    "A": "is are was were be been am has have had having do does did s",
    "M": "can could should shall will would must may might ought",
    "S": "when whenever if because so since where whether unless although though once why how what",
    "N": """not no never without nothing none only still again already anymore isn't aren't wasn't don't doesn't
        didn't won't can't cannot couldn't hasn't haven't shouldn't dont doesnt isnt cant""",
    "C": "and or but then also",
}

_SYMPTOMATIC: Final = """appear arrive jump skip flip spin forget miss accept reject overwrite reset stall drift
    flicker go stay keep throw hang crash fail freeze break lose leak return render produce show display open close
    load send print delete remove add drop eat swallow ignore stop start run die exit point answer reconnect twitch
    stutter reappear overlap expire vanish disappear use take give get make become contain respond work need look
    come differ suggest hold stick flash trigger fire double log say blink rewrite redirect update restart ignore
    pick place play land charge count block claim complain cover cut bounce choke pass report turn want"""


def _by_word(classes: dict[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, words in classes.items():
        for word in words.split():
            found[word] = (*found.get(word, ()), name)
    return found


VERBS: Final = _by_word(_VERBS)
CLASSES: Final = _by_word(_WORDS)
TAGS: Final = {word: tag for tag, words in _TAGS.items() for word in words.split()}
TOLD: Final = frozenset(_SYMPTOMATIC.split())
"""Verbs that tell what something does: `the page jumps`."""
