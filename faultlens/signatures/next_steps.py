"""What to do about a cause, in words that are kept as data."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter

from faultlens.causes import is_known
from faultlens.signatures.loader import NEXT_STEPS_FILE, SHIPPED_DIRECTORY, SignatureError
from faultlens.yaml_lines import Problem, YamlProblemError, read_yaml


class NextStep(BaseModel):
    """What to do when a cause code, or one below it, was decided."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: str
    do: Annotated[str, StringConstraints(min_length=10, max_length=300)]


class NextSteps:
    """Answers by the longest code that fits."""

    def __init__(self, steps: tuple[NextStep, ...]) -> None:
        self._by_code = {step.code: step.do for step in steps}

    def for_cause(self, code: str) -> str:
        """The step for the code or the nearest more general one. Raises `KeyError` for an unknown first word."""
        words = code.split(".")
        for length in range(len(words), 1, -1):
            found = self._by_code.get(".".join(words[:length]))
            if found is not None:
                return found
        return self._by_code[words[0]]


def load_next_steps() -> NextSteps:
    """The shipped steps. Raises `SignatureError`."""
    path = SHIPPED_DIRECTORY / NEXT_STEPS_FILE
    try:
        document = read_yaml(path)
    except YamlProblemError as error:
        raise SignatureError([error.problem]) from None
    steps = TypeAdapter(tuple[NextStep, ...]).validate_python(tuple(document.data))
    unknown = [
        Problem(path, document.line((i,)), f"unknown cause code {s.code!r}")
        for i, s in enumerate(steps)
        if not is_known(s.code) and "." in s.code
    ]
    if unknown:
        raise SignatureError(unknown)
    return NextSteps(steps)
