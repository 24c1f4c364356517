"""All claims of the papers with their status, from the stored records of studies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from smallvit.errors import UsageError
from smallvit.runs.atomic import write_text
from smallvit.studies.library import PaperClaim, paper_claims, read_study, study_names
from smallvit.studies.record import Opened, open_study
from smallvit.studies.statuses import WORDS, Status, Word, is_asked, statuses, word_of_study

RESULTS = "results"  # where the records lie, seen from the page of all claims
BEGIN, END = "<!-- claims -->", "<!-- /claims -->"  # of the table on the page of a paper
HEAD = ["| | claim | published | status | evidence |", "|---|---|---|---|---|"]


class Evidence(NamedTuple):
    """What one study says of a claim."""

    study: str
    scale: str
    word: Word
    checks: tuple[Status, ...]  # those that its scale asks for, the strongest first


class Gathered(NamedTuple):
    claim: PaperClaim
    studies: tuple[str, ...]  # those that check it
    evidence: tuple[Evidence, ...]  # from those that have runs, the strongest first

    @property
    def word(self) -> Word:
        if self.evidence:
            return self.evidence[0].word
        return "cannot be decided here" if self.claim.needs else "not decided"

    @property
    def why(self) -> str:
        if not self.evidence:
            if self.claim.needs:
                return f"missing: {self.claim.needs}"
            return f"no runs yet: `smallvit study run {self.studies[0]} --scale laptop`" if self.studies else "no study"
        return "<br>".join(
            f"[{one.study}]({RESULTS}/{one.study}.json){' (a part of it)' * check.claim.part}: {check.word}; {check.why}"
            for one in self.evidence
            for check in one.checks
        )


def gathered(results: Path) -> list[Gathered]:
    checked: dict[str, list[str]] = {}
    found: dict[str, list[Evidence]] = {}
    for name in study_names():
        for number in dict.fromkeys(claim.claim for claim in read_study(name).claims if claim.claim):
            checked.setdefault(number, []).append(name)
        file = results / f"{name}.json"
        if file.is_file():
            for number, evidence in _of_study(name, open_study(file)).items():
                found.setdefault(number, []).append(evidence)
    return [
        Gathered(
            claim, tuple(checked.get(claim.number, ())),
            tuple(sorted(found.get(claim.number, ()), key=lambda one: WORDS.index(one.word))),
        )
        for claim in paper_claims()
    ]  # fmt: skip


def _of_study(name: str, opened: Opened) -> dict[str, Evidence]:
    """Number of a claim -> what this study says of it, where all runs of one of its checks are there."""
    study, record = opened.study, opened.record
    by_number: dict[str, list[Status]] = {}
    for status in statuses(study, record):
        if status.claim.claim:
            by_number.setdefault(status.claim.claim, []).append(status)
    found = {}
    for number, checks in by_number.items():
        if any(all(record.of(arm) for arm in one.claim.arms) for one in checks):
            asked = [one for one in checks if is_asked(study, record, one.claim)]
            asked.sort(key=lambda one: WORDS.index(one.word))
            found[number] = Evidence(name, record.scale, word_of_study(study, record, checks), tuple(asked))
    return found


def counts(found: Sequence[Gathered]) -> dict[str, int]:
    return {word: sum(one.word == word for one in found) for word in WORDS}


def claims_page(found: Sequence[Gathered]) -> str:
    told = ", ".join(f"{n} {word}" for word, n in counts(found).items() if n)
    runs = sum(bool(one.evidence) for one in found)
    lines = [
        "# The claims of the papers, and what was seen", "",
        f"Written by `smallvit study claims --out docs/claims.md` from the records under [{RESULTS}/]({RESULTS}/). What was run, paper by paper: "
        + ", ".join(f"[{own[0].claim.paper}](papers/{key}.md)" for key, own in papers(found).items()) + ".",
        "Statuses follow from intervals by rule:",
        "", "- *holds*, *fails*: at the published setting, and the interval leaves the other out, over seeds (Holm's correction over all comparisons of the",
        "  study) and over test images;",
        "- *direction seen at laptop scale*: the same, with other data, sizes or epochs than published;",
        "- *not decided*: the interval tells neither, or a model was at chance, or had at most a fiftieth of the published epochs;",
        "- *cannot be decided here*: data or hardware are missing.", "",
        "Where a study checks a claim part by part, one part that fails is enough, and else the weakest of their words counts. Of several studies the strongest does.", "",
        f"{len(found)} claims: {told}. {runs} of them have runs.", "",
        *HEAD,
    ]  # fmt: skip
    for paper in dict.fromkeys(one.claim.paper for one in found):
        lines.append(f"| | *{paper}* | | | |")
        lines += [row(one) for one in found if one.claim.paper == paper]
    return "\n".join(lines)


def row(one: Gathered) -> str:
    return f"| {one.claim.number} | {one.claim.says} | {one.claim.published} | **{one.word}** | {one.why} |"


# ---- pages of the papers -------------------------------------------------------------------------------


def key_of_paper(paper: str) -> str:
    """Zhu et al. 2023 -> zhu2023: as its studies and recipes begin."""
    words = paper.split()
    return f"{words[0].lower()}{words[-1]}"


def papers(found: Sequence[Gathered]) -> dict[str, list[Gathered]]:
    """Key of a paper -> its claims, in the order of the papers."""
    by_paper: dict[str, list[Gathered]] = {}
    for one in found:
        by_paper.setdefault(key_of_paper(one.claim.paper), []).append(one)
    return by_paper


def paper_table(own: Sequence[Gathered]) -> str:
    """The claims of one paper, for a page in a folder beside the records."""
    told = ", ".join(f"{n} {word}" for word, n in counts(own).items() if n)
    rows = [row(one).replace(f"]({RESULTS}/", f"](../{RESULTS}/") for one in own]
    return "\n".join([f"{len(own)} claims: {told} ([how that is said](../claims.md)).", "", *HEAD, *rows])


def with_table(page: str, own: Sequence[Gathered]) -> str:
    """The page of a paper with its table as it is now; all else stays."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page of a paper needs the lines {BEGIN} and {END}, for the table between them")
    return f"{before}{BEGIN}\n{paper_table(own)}\n{END}{after}"


def renew_pages(folder: Path, found: Sequence[Gathered]) -> None:
    """NAME.md of every paper."""
    for key, own in papers(found).items():
        page = folder / f"{key}.md"
        try:
            text = page.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--pages: cannot read {page}: {error.strerror}") from None
        write_text(page, with_table(text, own))


def claims_json(found: Sequence[Gathered]) -> str:
    return json.dumps(
        [
            {**one.claim._asdict(), "status": one.word, "evidence": [{"study": e.study, "scale": e.scale, "status": check.word, "why": check.why} for e in one.evidence for check in e.checks]}
            for one in found
        ],
        indent=1,
    )  # fmt: skip
