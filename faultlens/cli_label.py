"""`faultlens label` and `labels`: a person's word on why a job failed is the truth, and shows which rules err."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Annotated, Final

import typer

from faultlens.cli_answers import ClusterOption, opened, tell_unknown
from faultlens.cli_options import Brokers, JsonOption, ObjectivesOption, StoreOption
from faultlens.errors import UsageError
from faultlens.kafka import load_connection
from faultlens.local_labelling import Labelled, Word, label_in_store, label_on_brokers, word_of
from faultlens.local_roles import load_roles
from faultlens.settings import load_settings
from slo.labels import labels as ask_labels
from slo.labels import rules_overruled
from slo.labels_text import as_plain, as_text, shown
from slo.why import UnknownJobError
from slo.why.story import Judgement

EXIT_BAD: Final = 1
BY_LIMIT: Final = 100


def label(  # noqa: PLR0913 - one parameter for each option of the command
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or JOB/N for its attempt N.")],
    *,
    class_: Annotated[
        str | None, typer.Option("--class", metavar="CLASS", help="hardware, driver, platform or user.")
    ] = None,
    code: Annotated[
        str | None, typer.Option(metavar="CODE", help="The cause, such as gpu.off_bus; without it the class alone.")
    ] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="How you know. It is shown beside the verdict.")] = "",
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Without it the last attempt that failed.")
    ] = None,
    loss: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="A loss that the attempt survived, not its end.")
    ] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="The node that is to blame.")] = None,
    device: Annotated[int | None, typer.Option(min=0, metavar="INDEX", help="Which of its GPUs.")] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who says so; by default your user name.")] = None,
    brokers: Brokers = None,
    store: StoreOption = None,
    catalogue: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own fault catalogue, as for replay.")
    ] = None,
    signatures: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own log signatures, as for replay.")
    ] = None,
    objectives: ObjectivesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what made a job fail: your word is final for that attempt, and changes objectives, ledger and report.

    Goes to the brokers where there are any, else into the store that replays fill. Ends with 1 if the store does not
    know the job.
    """
    named = word_of(class_, code, by=_name(by), why=why)
    word = Word(named.cause_class, named.code, named.by, why, loss, node, device)
    if brokers is not None or (store is None and load_settings().brokers):
        _on_brokers(brokers, job, attempt, word, as_json=as_json)
        return
    roles = load_roles(catalogue or (), signatures or (), objectives)
    with opened(store) as target:
        try:
            done = label_in_store(target, store or load_settings().store, (job, attempt), word, roles)
        except UnknownJobError as error:
            tell_unknown(job, error, str(target), as_json=as_json)
            raise typer.Exit(EXIT_BAD) from None
    typer.echo(json.dumps(_plain(done, word), indent=2) if as_json else _text(done, word))


def _name(by: str | None) -> str:
    name = (by or getpass.getuser()).strip()
    if not name or len(name) > BY_LIMIT:
        raise UsageError(f"--by: a name of 1 to {BY_LIMIT} characters")
    return name


def _on_brokers(brokers: str | None, job: str, attempt: int | None, word: Word, *, as_json: bool) -> None:
    name, slash, number = job.rpartition("/")
    if attempt is None and slash and number.isdigit():
        job, attempt = name, int(number)
    if attempt is None:
        raise UsageError(f"name the attempt, as {job}/1 or by --attempt: the brokers do not say which failed last")
    label_on_brokers(load_connection(brokers), job, attempt, word)
    said = {"job_id": job, "attempt": attempt, "class": word.cause_class, "code": word.code, "by": word.by}
    typer.echo(
        json.dumps(said, indent=2)
        if as_json
        else f"{shown(job)}/{attempt} is labelled {word.cause_class}, {word.code}: its verdict follows in seconds"
    )


def _text(done: Labelled, word: Word) -> str:
    name = f"{shown(done.after.job_id)}/{done.after.attempt}"
    before, after = _verdict(done.before.verdict), _verdict(done.after.verdict)
    if word.loss is not None:
        return f"{name}: its loss {word.loss} is labelled {word.cause_class}, {word.code}"
    if done.after.verdict is None:
        return f"{name} did not fail: that is recorded, and changes nothing"
    if done.before.verdict is not None and done.before.verdict.revision == done.after.verdict.revision:
        return f"{name}: {after} it stays; that a person agrees is recorded"
    return f"{name}: was {before}, is now {after} ({done.after.verdict.status}, revision {done.after.verdict.revision})"


def _verdict(verdict: Judgement | None) -> str:
    return "without a verdict" if verdict is None else f"{verdict.cause_class}, {shown(verdict.code)}"


def _plain(done: Labelled, word: Word) -> dict[str, object]:
    return {
        "job_id": done.after.job_id,
        "attempt": done.after.attempt,
        "loss": word.loss,
        "label": {"class": word.cause_class, "code": word.code, "by": word.by, "why": word.why},
        "before": _judged(done.before.verdict),
        "after": _judged(done.after.verdict),
    }


def _judged(verdict: Judgement | None) -> dict[str, object] | None:
    if verdict is None:
        return None
    return {
        "class": verdict.cause_class,
        "code": verdict.code,
        "basis": verdict.basis,
        "rule": verdict.rule,
        "status": verdict.status,
        "revision": verdict.revision,
    }


def labels(*, cluster: ClusterOption = "", store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List what people said of failures, and the rules that they overruled most often."""
    with opened(store) as target:
        said = ask_labels(target, cluster=cluster)
    rules = rules_overruled(said)
    typer.echo(json.dumps(as_plain(said, rules), indent=2) if as_json else as_text(said, rules))
