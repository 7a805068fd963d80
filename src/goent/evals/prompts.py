"""What is a target asked, in words?"""

from goent.evals.suites import Case


def question(case: Case) -> str:
    """All of the input as one text: of several messages each under its role."""
    if len(case.input) == 1:
        return case.input[0].text
    return "\n\n".join(f"[{said.role}]\n{said.text}" for said in case.input)
