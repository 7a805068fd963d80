"""How does the doctor's diagnosis look to a person?"""

import sys

from goent.doctor import Diagnosis, Verdict

MARKS: dict[Verdict, str] = {"fine": "✓", "note": "!", "wrong": "✗"}
COLOURS: dict[Verdict, str] = {"fine": "\x1b[32m", "note": "\x1b[33m", "wrong": "\x1b[31m"}
PLAIN = "\x1b[0m"


def show_diagnosis(diagnosis: Diagnosis) -> None:
    colourful = sys.stdout.isatty()
    width = max(len(finding.subject) for finding in diagnosis.findings)
    for finding in diagnosis.findings:
        mark = MARKS[finding.verdict]
        if colourful:
            mark = f"{COLOURS[finding.verdict]}{mark}{PLAIN}"
        print(f"{mark} {finding.subject:<{width}}  {finding.text}")
        if finding.remedy:
            print(f"  {'':<{width}}  → {finding.remedy}")
    print()
    if diagnosis.usable:
        print('go-ent can work here: go-ent run "a task"')
    else:
        print("go-ent cannot work here yet: see the lines marked ✗")
