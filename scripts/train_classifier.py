"""Learns the weights of the task classifier, and judges them on what they have not seen.

`write` learns from everything and writes the package's file. `judge` leaves each repository of the
tasks out in turn, learns from the rest, and asks the real `classify` about the one left out, beside
TF-IDF with logistic regression; `voices` does so with each voice of `classifier_plain.txt`. Both print
JSON. All want numpy, scipy and scikit-learn, which are no dependencies of go-ent: `python -m bench
classify` makes an environment that has them.
"""

# What this file imports is not in the environment in which types are checked:
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import argparse
import json
import math
import random
import sys
import time
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from goent.domain.tasks import TASK_TYPES, TaskText
from goent.tasks.classify import classify
from goent.tasks.features import features, parts
from goent.tasks.plain import read_plainly
from goent.tasks.weights import FILE, LEARNED, Model, Table, Weights, key_of
from scipy import sparse
from scipy.stats import rankdata, spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from changelogs import entries

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src" / "goent" / "routing" / FILE
SEEDS = Path(__file__).with_name("classifier_seeds.txt")
PLAIN = Path(__file__).with_name("classifier_plain.txt")

CHANGELOG, SEED, WORDED = 0.3, 0.5, 0.1  # what an example is worth beside one of the tasks
MOST = {"fix": 30, "implement": 30}  # from one changelog; of the others 120
LEAST_TEXTS = 2  # in which a feature must occur
KEPT = 16_000  # features
INVERSE_PENALTY = 1.5
PENALTY = 40.0
CENTRED = 0.5  # how much of a repository's own mean size is taken out
SIZED = ("w:", "f:", "h:", "n:")  # kinds of features that size is learned from
SHARES = (0.12, 0.42, 0.78, 0.94)  # of tasks below each cut between complexities
PLAIN_KEPT = 16_000  # features
PLAIN_INVERSE_PENALTY = 3.0
LENT = 0.05  # what a description of a change is worth beside a plainly worded task
FOLDS = 12  # of voices
RANGE = 127


class Example(NamedTuple):
    text: str
    type: int
    worth: float
    repo: str = ""
    lines: float = 0.0
    files: float = 0.0


def read_tasks(path: Path) -> list[Example]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Example(
            text=row["text"],
            type=LEARNED.index(row["type"]),
            worth=1.0,
            repo=row["repo"],
            lines=float(np.log1p(row["lines"])),
            files=float(np.log(max(row["files"], 1))),
        )
        for row in rows
    ]


def read_changelogs(folder: Path) -> list[Example]:
    """At most so many of a kind from each, chosen by a fixed seed."""
    chosen: list[Example] = []
    seen: set[str] = set()
    for path in sorted(folder.glob("*.md")):
        found = list(entries(path.read_text(encoding="utf-8", errors="replace")))
        random.Random(path.name).shuffle(found)
        taken: dict[str, int] = {}
        for kind, text in found:
            taken[kind] = taken.get(kind, 0) + 1
            if taken[kind] <= MOST.get(kind, 120) and text.lower() not in seen:
                seen.add(text.lower())
                chosen.append(Example(text, LEARNED.index(kind), CHANGELOG))
    return chosen


def read_seeds() -> list[Example]:
    kind, tools, found = "", [], []
    for line in SEEDS.read_text(encoding="utf-8").splitlines():
        if line.startswith("tools: "):
            tools = line.split()[1:]
        elif line.startswith("["):
            kind = line.strip("[]")
        elif not line.startswith("#"):
            texts = [line.format(tool=tool) for tool in tools] if "{tool}" in line else [line]
            found += [Example(text, LEARNED.index(kind), SEED) for text in texts]
    return found


class PlainTask(NamedTuple):
    text: str
    type: int
    voice: str


def read_plain() -> list[PlainTask]:
    voice, kind, found = "", "", []
    for line in PLAIN.read_text(encoding="utf-8").splitlines():
        if line.startswith("voice: "):
            voice = line.removeprefix("voice: ")
        elif line.strip("[]") in TASK_TYPES and line.startswith("["):
            kind = line.strip("[]")
        elif line and not line.startswith("# "):
            found.append(PlainTask(line, TASK_TYPES.index(kind), voice))
    return found


def without_questions(tasks: list[PlainTask]) -> list[Example]:
    """Those that could be descriptions of changes."""
    return [
        Example(task.text, LEARNED.index(TASK_TYPES[task.type]), WORDED)
        for task in tasks
        if TASK_TYPES[task.type] in LEARNED and not task.text.endswith("?")
    ]


class Corpus(NamedTuple):
    """Examples, tasks first, and what was read of them: a row each, a column a feature."""

    examples: list[Example]
    names: list[str]
    matrix: sparse.csr_matrix

    def without(self, repo: str | None) -> "Corpus":
        """As if the repository had never been seen: not even its words are known."""
        rows = [i for i, example in enumerate(self.examples) if example.repo != repo]
        matrix = self.matrix[rows]
        known = np.flatnonzero(_texts(matrix) >= LEAST_TEXTS)
        names = [self.names[i] for i in known]
        return Corpus([self.examples[i] for i in rows], names, matrix[:, known])


def read_corpus(examples: list[Example]) -> Corpus:
    return Corpus(examples, *_matrix(features(example.text) for example in examples))


def _matrix(texts: Iterable[Mapping[str, float]]):
    """The features' names, and a row for each text."""
    names: dict[str, int] = {}
    rows, columns, values = array("i"), array("i"), array("f")
    count = 0
    for row, found in enumerate(texts):
        count += 1
        for name, value in sorted(found.items()):
            rows.append(row)
            columns.append(names.setdefault(name, len(names)))
            values.append(value)
    shape = (count, len(names))
    return list(names), sparse.csr_matrix((values, (rows, columns)), shape=shape, dtype=np.float64)


def _plain_features(text: str) -> dict[str, float]:
    """As `classify` reads them."""
    asked = read_plainly(text)
    names = asked.features if asked else ()
    pieces = parts(text)[1]
    each = 1 / math.sqrt(max(1, len(names)))
    features: dict[str, float] = dict.fromkeys(names, each)
    features.update(dict.fromkeys(pieces.names, pieces.value))
    return features


def learn_plain(tasks: list[PlainTask], others: list[Example]) -> Table:
    """Types of plainly worded tasks, one against the others; `others` lend their words."""
    examples = [(task.text, TASK_TYPES[task.type], 1.0) for task in tasks]
    examples += [(example.text, LEARNED[example.type], LENT) for example in others]
    names, matrix = _matrix(_plain_features(text) for text, _, _ in examples)
    known = np.flatnonzero(_texts(matrix) >= LEAST_TEXTS)
    matrix = matrix[:, known]
    types = np.array([TASK_TYPES.index(kind) for _, kind, _ in examples])
    worth = np.array([worth for _, _, worth in examples])
    weights = _separated(matrix, types, worth).coef_.T
    counted = np.sqrt(_texts(matrix[: len(tasks)]) + LENT * _texts(matrix[len(tasks) :]))
    kept = np.argsort(-np.abs(weights).max(1) * counted)[:PLAIN_KEPT]
    fitted = _separated(matrix[:, kept], types, worth)  # again, so that they stand in for the rest
    bias = [float(bias) for bias in fitted.intercept_]
    return _packed(fitted.coef_.T, [names[known[i]] for i in kept], bias)


def _separated(matrix, types: np.ndarray, worth: np.ndarray) -> LinearSVC:
    fitted = LinearSVC(C=PLAIN_INVERSE_PENALTY, random_state=0)
    return fitted.fit(matrix, types, sample_weight=worth)


def learn(corpus: Corpus, plain: Table) -> Model:
    """Types from everything, sizes from the tasks, the least useful features left out."""
    tasks = [example for example in corpus.examples if example.repo]
    texts = _texts(corpus.matrix)
    columns = [
        *_type_columns(corpus.matrix, corpus.examples),
        *_size_columns(corpus.matrix[: len(tasks)], tasks, corpus.names),
    ]
    weights = np.column_stack([column for column, _ in columns])
    bias = [float(bias) for _, bias in columns]
    kept = np.argsort(-np.abs(weights[:, : len(LEARNED)]).max(1) * np.sqrt(texts))[:KEPT]
    sized = np.flatnonzero(weights[:, len(LEARNED) :].any(axis=1) & (texts > LEAST_TEXTS))
    kept = np.union1d(kept, sized)
    predicted = corpus.matrix[: len(tasks)] @ weights[:, len(LEARNED)] + bias[len(LEARNED)]
    cuts = tuple(float(cut) for cut in np.quantile(predicted, SHARES))
    described = _packed(weights[kept], [corpus.names[i] for i in kept], bias)
    return Model(described=described, plain=plain, cuts=cuts)


def _texts(matrix) -> np.ndarray:
    """In how many texts each feature occurs."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1])


def _type_columns(matrix, examples: list[Example]):
    """One type against the others, each type worth the same in sum."""
    types = np.array([example.type for example in examples])
    worth = np.array([example.worth for example in examples])
    sums = np.bincount(types, weights=worth, minlength=len(LEARNED))
    worth *= (worth.sum() / len(LEARNED) / np.maximum(sums, 1))[types]
    for kind in range(len(LEARNED)):
        fitted = LogisticRegression(C=INVERSE_PENALTY, solver="liblinear", tol=0.02, random_state=0)
        fitted.fit(matrix, types == kind, sample_weight=worth)
        yield fitted.coef_[0], fitted.intercept_[0]


def _size_columns(matrix, tasks: list[Example], names: list[str]):
    """Rare features are penalised less, and a repository's own habit counts half."""
    used = np.array([name.startswith(SIZED) for name in names])
    here = _texts(matrix)
    scale = np.where(used & (here > 0), np.log(len(tasks) / np.maximum(here, 1)), 0.0)
    repos = np.array([task.repo for task in tasks])
    for field in ("lines", "files"):
        wanted = np.array([getattr(task, field) for task in tasks])
        means = {repo: wanted[repos == repo].mean() for repo in set(repos)}
        centred = wanted - CENTRED * (np.array([means[r] for r in repos]) - wanted.mean())
        fitted = Ridge(alpha=PENALTY, solver="sparse_cg", tol=1e-3)
        fitted.fit(matrix @ sparse.diags(scale), centred)
        yield fitted.coef_ * scale, fitted.intercept_


def _packed(weights, names: list[str], bias: list[float]) -> Table:
    steps = np.abs(weights).max(axis=0) / RANGE
    order = sorted(range(len(names)), key=lambda i: key_of(names[i]))
    values = np.rint(weights[order] / steps).astype(np.int8)
    keys = array("I", (key_of(names[i]) for i in order))
    if sys.byteorder == "big":
        keys.byteswap()
    return Table(
        keys=keys.tobytes(),
        values=values.tobytes(),
        bias=tuple(bias),
        steps=tuple(float(step) for step in steps),
    )


def judge(corpus: Corpus) -> dict[str, object]:
    """Each repository left out in turn; ours through the real `classify`, quantised as shipped."""
    tasks = [example for example in corpus.examples if example.repo]
    others = [example for example in corpus.examples if example.worth in (CHANGELOG, SEED)]
    plain = learn_plain(read_plain(), others)
    types = np.array([task.type for task in tasks])
    lines = np.array([task.lines for task in tasks])
    ours, sizes = np.zeros(len(tasks), int), np.zeros(len(tasks))
    theirs, their_sizes = np.zeros(len(tasks), int), np.zeros(len(tasks))
    seconds: list[float] = []
    for repo in sorted({task.repo for task in tasks}):
        left = np.array([task.repo == repo for task in tasks])
        rest = [task for task in tasks if task.repo != repo]
        weights = Weights(learn(corpus.without(repo), plain))
        for i in np.flatnonzero(left):
            begun = time.perf_counter()
            told = classify(TaskText(text=tasks[i].text), weights=weights)
            seconds.append(time.perf_counter() - begun)
            ours[i] = LEARNED.index(told.type) if told.type in LEARNED else -1
            sizes[i] = told.size
        theirs[left], their_sizes[left] = _reference(rest, [t for t in tasks if t.repo == repo])
        print(f"{repo} left out", file=sys.stderr, flush=True)
    matrix = [
        [int(((types == a) & (ours == b)).sum()) for b in (*range(len(LEARNED)), -1)]
        for a in range(len(LEARNED))
    ]
    return {
        "tasks": len(tasks),
        "others": len(corpus.examples) - len(tasks),
        "types": LEARNED,
        "confusion": matrix,
        "ours": _figures(ours, sizes, types, lines),
        "reference": _figures(theirs, their_sizes, types, lines),
        "p50_ms": float(np.percentile(seconds, 50) * 1000),
        "p99_ms": float(np.percentile(seconds, 99) * 1000),
    }


def judge_voices(examples: list[Example]) -> dict[str, object]:
    """A fold of the voices left out in turn: which share of its types is right."""
    tasks = read_plain()
    others = [example for example in examples if not example.repo]
    voices = sorted({task.voice for task in tasks})
    right: dict[str, list[bool]] = {}
    for fold in range(FOLDS):
        rest = [task for task in tasks if task.voice not in voices[fold::FOLDS]]
        corpus = read_corpus([*examples, *without_questions(rest)])
        weights = Weights(learn(corpus.without(None), learn_plain(rest, others)))
        for task in tasks:
            if task.voice in voices[fold::FOLDS]:
                told = classify(TaskText(text=task.text), weights=weights)
                right.setdefault(task.voice, []).append(told.type == TASK_TYPES[task.type])
    return {
        "tasks": len(tasks),
        "accuracy": sum(map(sum, right.values())) / len(tasks),
        "voices": {voice: round(sum(them) / len(them), 3) for voice, them in right.items()},
    }


def _reference(rest: list[Example], left: list[Example]):
    words = TfidfVectorizer(sublinear_tf=True)
    known = words.fit_transform([task.text for task in rest])
    asked = words.transform([task.text for task in left])
    types = LogisticRegression(max_iter=300, class_weight="balanced")
    types.fit(known, [task.type for task in rest])
    sizes = Ridge(alpha=1.0).fit(known, [task.lines for task in rest])
    return types.predict(asked), sizes.predict(asked)


def _figures(said, sizes, types, lines) -> dict[str, float]:
    recalls = [float((said[types == kind] == kind).mean()) for kind in range(len(LEARNED))]
    share = 1.0 / np.bincount(types, minlength=len(LEARNED))[types]
    return {
        "accuracy": float((said == types).mean()),
        "balanced": float(np.mean(recalls)),
        "rank": float(spearmanr(sizes, lines)[0]),
        "rank_balanced": _weighted_rank(sizes, lines, share),
    }


def _weighted_rank(a, b, share) -> float:
    """Of ranks, each type worth the same."""
    share = share / share.sum()
    a, b = rankdata(a), rankdata(b)
    a, b = a - (share * a).sum(), b - (share * b).sum()
    return float((share * a * b).sum() / np.sqrt((share * a * a).sum() * (share * b * b).sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("write", "judge", "voices"))
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--changelogs", type=Path, required=True)
    arguments = parser.parse_args()
    tasks = read_tasks(arguments.tasks)
    others = [*read_changelogs(arguments.changelogs), *read_seeds()]
    if arguments.what == "voices":
        print(json.dumps(judge_voices([*tasks, *others]), indent=1))
        return
    plain = read_plain()
    corpus = read_corpus([*tasks, *others, *without_questions(plain)])
    if arguments.what == "judge":
        print(json.dumps(judge(corpus)))
        return
    packed = msgspec.msgpack.encode(learn(corpus.without(None), learn_plain(plain, others)))
    OUT.write_bytes(packed)
    examples = f"{len(tasks)} tasks, {len(others)} others and {len(plain)} plainly worded ones"
    print(f"{OUT.name}: {len(packed):,} bytes, from {examples}")


if __name__ == "__main__":
    main()
