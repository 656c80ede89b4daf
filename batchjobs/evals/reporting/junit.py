"""A report as JUnit XML, which every CI shows.

The verdict is the first case: a failure if it is worse, skipped if there is none. Items follow:
those that broke against the baseline are failures, those without a score skipped.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from batchjobs.evals.outcomes import ScoredRun
from batchjobs.evals.reporting.content import Content
from batchjobs.evals.tally import shown_score

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(content: Content, scored: ScoredRun) -> str:
    """`scored` has the outcomes of the run's deciding metric."""
    run = content.run
    root = ElementTree.Element("testsuite", name=_clean(f"{run.suite} on {run.model}"))
    verdict = ElementTree.SubElement(root, "testcase", classname=run.suite, name="verdict")
    sentence = _clean(run.verdict["sentence"]) if run.verdict else "not judged"
    if run.word == "worse":
        ElementTree.SubElement(verdict, "failure", message=sentence)
    elif run.word in (None, "no verdict"):
        ElementTree.SubElement(verdict, "skipped", message=sentence)
    broken = {flip.item: flip for flip in content.flips if flip.is_broken}
    failed = int(run.word == "worse")
    for outcome in scored.outcomes:
        name = _clean(outcome.item) + (f" #{outcome.sample}" if outcome.sample else "")
        case = ElementTree.SubElement(root, "testcase", classname=run.suite, name=name)
        if outcome.missing is not None:
            ElementTree.SubElement(case, "skipped", message=str(outcome.missing))
        elif flip := broken.get(outcome.item):
            failed += 1
            change = f"{shown_score(flip.before)} → {shown_score(flip.after)}"
            ElementTree.SubElement(case, "failure", message=f"broken: {change}")
    root.set("tests", str(len(root)))
    root.set("failures", str(failed))
    root.set("skipped", str(len(root.findall("testcase/skipped"))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _clean(text: str) -> str:
    """Without what no XML may have."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
