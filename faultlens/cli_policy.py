"""`faultlens policy`: what remediation would do about a fault, all routes, and cases that a policy must pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultlens.catalogue import Catalogue, load_catalogue
from faultlens.cli_options import JsonOption, PolicyOption
from faultlens.errors import UsageError
from faultlens.local_policy import decided_by
from faultlens.local_policy_asked import Question, asked
from faultlens.objectives import plain_duration
from faultlens.yaml_lines import load_model
from slo.wording import printable
from streams.remediation import Policy, Route, Rung
from streams.remediation.policy import LASTING, VACANT

EXIT_BAD: Final = 1
app = typer.Typer(add_completion=False, rich_markup_mode=None, help="What remediation does about what.")

CatalogueOption = Annotated[
    list[Path] | None, typer.Option("--catalogue", metavar="DIR", help="A site's own fault catalogue; may be repeated.")
]
FaultOption = Annotated[
    str,
    typer.Option(
        metavar="KIND:CODE",
        help="xid:79, xid:149/link_down, check:ecc/fail, kernel:silent; with --cause verdict:RULE, finding:KIND.",
    ),
]
CauseOption = Annotated[
    str | None, typer.Option(metavar="CODE", help="Of a verdict (established) or finding: what it blames.")
]
SeverityOption = Annotated[
    int | None, typer.Option(min=0, max=100, help="How bad, where that is not as the catalogue has it.")
]
AnnouncedOption = Annotated[
    str | None, typer.Option(metavar="STEP", help="What the driver asked for near it (Xid 154): drain_and_reset.")
]
IncidentsOption = Annotated[
    int,
    typer.Option(min=0, help="How many of any kind the machine had that cost a job or a repair, in four weeks."),
]
WatchedOption = Annotated[
    bool, typer.Option("--watched/--unwatched", help="The cluster's scheduler tells when nodes do not answer it.")
]


class Case(Question):
    """What must be done about a trouble: a case as people write it."""

    route: str | None = None
    steps: tuple[str, ...] | None = None
    contains: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    mode: str | None = None


class Cases(BaseModel):
    """A file of cases."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cases: tuple[Case, ...] = Field(min_length=1, max_length=10_000)


@app.command()
def explain(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    fault: FaultOption,
    family: Annotated[str | None, typer.Option(help="GPU family, such as H100.")] = None,
    driver: Annotated[str | None, typer.Option(help="Driver version or branch.")] = None,
    component: Annotated[str, typer.Option(help="Of a check that the catalogue does not know by name.")] = "gpu",
    cause: CauseOption = None,
    severity: SeverityOption = None,
    announced: AnnouncedOption = None,
    common: Annotated[bool, typer.Option("--common", help="Many nodes that share something have it at once.")] = False,
    pool: Annotated[str | None, typer.Option(help="The node's pool.")] = None,
    returns: Annotated[int, typer.Option(min=0, help="How often it was repaired here before, in four weeks.")] = 0,
    incidents: IncidentsOption = 0,
    times: Annotated[int, typer.Option(min=1, help="How often it came here within a day, with this one.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="How many jobs it has cost, by established verdicts.")] = 0,
    job_gpus: Annotated[int, typer.Option(min=0, help="How many GPUs the largest job has that works there.")] = 0,
    job_priority: Annotated[float | None, typer.Option(help="The highest priority of the jobs there.")] = None,
    watched: WatchedOption = False,
    policy: PolicyOption = None,
    catalogue: CatalogueOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say which route a trouble takes, and the steps in their order with what each waits for."""
    try:
        question = Question(
            fault=fault,
            family=family,
            driver=driver,
            component=component,
            cause=cause,
            severity=severity,
            announced=announced,
            common=common,
            pool=pool,
            returns=returns,
            incidents=incidents,
            times=times,
            jobs=jobs,
            job_gpus=job_gpus,
            job_priority=job_priority,
            watched=watched,
        )
    except ValidationError:
        raise UsageError(f"--fault: {fault!r} is not KIND:CODE, such as xid:79 or check:ecc/fail") from None
    answer = _answer(decided_by(policy), question, load_catalogue(catalogue or []))
    typer.echo(json.dumps(answer, indent=2) if as_json else _text(answer))


@app.command()
def show(*, policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """List the routes in the order in which they are asked, and the ladder of each."""
    decided = decided_by(policy)
    rows = [_route_row(decided, route) for route in decided.routes]
    if as_json:
        typer.echo(json.dumps({"version": decided.version, "routes": rows}, indent=2))
        return
    typer.echo(f"policy {printable(decided.version)}")
    width = max(len(row["route"]) for row in rows)
    for row in rows:
        typer.echo(f"  {row['route']:<{width}} {row['mode']:<7} {' > '.join(row['steps']) or 'nothing is done'}")


@app.command("test")
def held_against(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Cases in YAML: faults, and what must be done about them.")
    ],
    *,
    policy: PolicyOption = None,
    catalogue: CatalogueOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a policy against cases; ends with 1 if one fails."""
    decided, cases = decided_by(policy), load_model(file, Cases).cases
    failed, known = [], load_catalogue(catalogue or [])
    for number, case in enumerate(cases, 1):
        answer = _answer(decided, case, known)
        failed += [f"case {number} ({case.fault}): {why}" for why in _wrong(case, answer)]
    if as_json:
        typer.echo(json.dumps({"cases": len(cases), "failed": failed}, indent=2))
    else:
        for line in failed:
            typer.echo(printable(line, limit=400))
        typer.echo(f"{len(cases)} cases, {len(failed)} complaints")
    if failed:
        raise typer.Exit(EXIT_BAD)


def _answer(policy: Policy, question: Question, catalogue: Catalogue) -> dict[str, Any]:
    meant = asked(question, catalogue, policy)
    trouble = meant.trouble
    answer: dict[str, Any] = {
        "fault": question.fault,
        "means": meant.means,
        "cause": trouble.cause,
        "role": trouble.role,
        "severity": meant.severity,
        "policy": policy.version,
    }
    if meant.why is not None:
        return answer | {"route": None, "steps": [], "why": meant.why}
    route = policy.route(trouble)
    if route is None:
        return answer | {"route": None, "steps": [], "why": "no route is for it"}
    return answer | _route_row(policy, route, policy.tolerance_ms(route, trouble))


def _route_row(policy: Policy, route: Route, tolerance_ms: int | None = None) -> dict[str, Any]:
    ladder = policy.ladders[route.ladder]
    return {
        "route": route.name,
        "ladder": route.ladder,
        "mode": route.mode,
        "returns_by": route.returns_by,
        "steps": [rung.action for rung in ladder if _is_done(policy, rung)],
        "details": [_detail(policy, rung, tolerance_ms) for rung in ladder],
    }


def _is_done(policy: Policy, rung: Rung) -> bool:
    """Return whether the policy has somebody who can do it (`executable`)."""
    return policy.executable is None or rung.action in policy.executable


def _detail(policy: Policy, rung: Rung, tolerance_ms: int | None) -> str:
    if not _is_done(policy, rung):
        return f"{rung.action}: left out, since nobody here can do it (the policy's executable)"
    timing = policy.timings[rung.action]
    said = []
    if rung.wait in LASTING:
        said.append(_lasting(tolerance_ms))
    if rung.wait in VACANT:
        said.append("when nothing runs there")
    if rung.approval:
        said.append("when a person approves it")
    if rung.attempts > 1:
        said.append(f"up to {rung.attempts} times, {plain_duration(max(rung.cooldown_ms, 1000))} apart")
    said.append(f"to start within {plain_duration(timing.start_ms)} and end within {plain_duration(timing.finish_ms)}")
    return f"{rung.action}: {', '.join(said)}"


def _lasting(tolerance_ms: int | None) -> str:
    if tolerance_ms is None:
        return "when it persists"
    return "at once" if tolerance_ms == 0 else f"when it has lasted {plain_duration(tolerance_ms)}"


def _text(answer: dict[str, Any]) -> str:
    lines = [
        printable(f"{answer['fault']}: {answer['means']}", limit=400),
        f"  cause    {answer['cause']}, role {answer['role']}, severity {answer['severity']} of 100",
    ]
    if answer["route"] is None:
        return "\n".join([*lines, f"  nothing is done: {answer['why']}"])
    back = "verified reports" if answer["returns_by"] == "verified" else "a person"
    lines.append(f"  route    {answer['route']} ({answer['mode']}, policy {printable(answer['policy'])})")
    lines += [f"  {number}.       {detail}" for number, detail in enumerate(answer["details"], 1)]
    if not answer["details"]:
        lines.append("  nothing is done; it is recorded")
    return "\n".join([*lines, f"  back by  {back}"])


def _wrong(case: Case, answer: dict[str, Any]) -> list[str]:
    steps = answer["steps"]
    wrong = []
    if case.route is not None and answer["route"] != case.route:
        wrong.append(f"takes route {answer['route']}, expected {case.route}")
    if case.steps is not None and tuple(steps) != case.steps:
        wrong.append(f"takes {' > '.join(steps) or 'no step'}, expected {' > '.join(case.steps) or 'none'}")
    wrong += [f"lacks {action}" for action in case.contains if action not in steps]
    wrong += [f"must never {action}" for action in case.never if action in steps]
    if case.mode is not None and answer.get("mode") != case.mode:
        wrong.append(f"is {answer.get('mode')}, expected {case.mode}")
    return wrong


if __name__ == "__main__":
    app()
