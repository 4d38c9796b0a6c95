"""Loading the catalogue: what is refused, with file and line, and what a site may lay over it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from faultlens.catalogue import CatalogueError, load_catalogue
from faultlens.catalogue.loader import SHIPPED_DIRECTORY
from faultlens.errors import ConfigurationError

COMPLETE = """\
    meaning: "Something of our own"
    cause: gpu.compute
    role: root
    severity: 50
    fatal_to_job: true
    scope: device
    clears: [boot]
    action_hint: drain
"""
SITE_HEADER = "entries:\n"
TWICE = """\
  - {kind: xid, codes: [64], reason: because, date: 2026-11-02}
  - {kind: xid, codes: [64], families: [A100], reason: because, date: 2026-11-02}
"""


@pytest.fixture
def site(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "ours.yaml").write_text(text)
        return tmp_path

    return write


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A copy of the shipped files to break."""
    return Path(shutil.copytree(SHIPPED_DIRECTORY, tmp_path / "data"))


def complaints(shipped_dir: Path) -> list[str]:
    with pytest.raises(CatalogueError) as refused:
        load_catalogue(shipped_dir=shipped_dir)
    return [str(problem) for problem in refused.value.problems]


def site_complaints(directory: Path) -> list[str]:
    with pytest.raises(CatalogueError) as refused:
        load_catalogue([directory])
    return [str(problem) for problem in refused.value.problems]


def test_the_shipped_catalogue_loads_and_names_its_version() -> None:
    assert load_catalogue().version == "nvidia-xid 2026-11"


def test_a_code_that_no_entry_covers_on_some_family_is_a_gap(shipped: Path) -> None:
    path = shipped / "nvidia_xid.yaml"
    gone = "  - {codes: [80], families: [blackwell, grace_blackwell], profile: not_defined}\n"
    assert gone in path.read_text()
    path.write_text(path.read_text().replace(gone, ""))
    found = complaints(shipped)
    assert found == [
        f"{shipped}:1: no entry for xid 80 on {family} (or not on every driver branch)"
        for family in ("B100", "B200", "B300", "GB200", "GB300")
    ]


def test_a_code_that_is_only_covered_on_some_driver_branches_is_a_gap(shipped: Path) -> None:
    path = shipped / "nvidia_xid.yaml"
    path.write_text(path.read_text().replace("  - codes: [79]\n", "  - codes: [79]\n    drivers: {from: 470}\n"))
    assert "no entry for xid 79 on A100 (or not on every driver branch)" in "\n".join(complaints(shipped))


def test_driver_branches_that_meet_leave_no_gap_and_are_told_apart(shipped: Path) -> None:
    old = "kind: xid\nvendor: nvidia\nsource: test\nentries:\n  - codes: [79]\n    drivers: {below: 470}\n" + COMPLETE
    (shipped / "old_drivers.yaml").write_text(old)
    path = shipped / "nvidia_xid.yaml"
    path.write_text(path.read_text().replace("  - codes: [79]\n", "  - codes: [79]\n    drivers: {from: 470}\n"))
    catalogue = load_catalogue(shipped_dir=shipped)
    causes = {
        driver: catalogue.resolve("xid", "79", family="H100", driver=driver).cause_code
        for driver in ("450.80.02", "470.57.02", "575", None, "no version")
    }
    assert causes == {
        "450.80.02": "gpu.compute",
        "470.57.02": "gpu.off_bus",
        "575": "gpu.off_bus",
        None: "gpu.off_bus",
        "no version": "gpu.off_bus",
    }


def test_two_entries_for_one_code_family_and_branch_overlap(shipped: Path) -> None:
    text = "kind: xid\nvendor: nvidia\nsource: test\nentries:\n  - codes: [13, 79]\n    families: [H200]\n" + COMPLETE
    (shipped / "zz.yaml").write_text(text)
    found = complaints(shipped)
    assert len(found) == 2
    assert found[0].startswith(f"{shipped}/zz.yaml:5: xid 13: overlaps the entry at nvidia_xid.yaml:")
    assert found[1].startswith(f"{shipped}/zz.yaml:5: xid 79: overlaps the entry at nvidia_xid.yaml:")


@pytest.mark.parametrize(
    ("wrong", "line", "complaint"),
    [
        ("    role: culprit\n", 6, "entries.0.role: Input should be 'root', 'sympathetic'"),
        ("    cause: gpu.bad_mood\n", 6, "cause 'gpu.bad_mood' is not in the registry"),
        ("    severity: 101\n", 6, "entries.0.severity: Input should be less than or equal to 100"),
        ("    clears: [once, boot]\n", 5, "`once` cannot be joined with another way to clear"),
        ("    clears: [prayer]\n", 6, "entries.0.clears.0: String should match pattern"),
        ("    families: [C64]\n", 5, "unknown family or generation 'C64'; known are nvidia, amd, aws, pre_ampere"),
        ("    profile: none_such\n", 5, "unknown profile 'none_such'; this file has: none"),
        ("    mood: bad\n", 6, "entries.0.mood: Extra inputs are not permitted"),
        ('    meaning: "Only a meaning"\n', 5, "missing cause, role, severity, fatal_to_job, scope, clears"),
        ("    kind: gpu\n", 6, "unknown kind 'gpu'; known are cpu, fabric_manager"),
        ("    drivers: {}\n", 6, "say `from`, `below` or both"),
        ("    families: [H100]\n    families_except: [A100]\n", 5, "give `families` or `families_except`, not both"),
    ],
)  # fmt: skip
def test_words_that_mean_nothing_are_refused_with_file_and_line(
    shipped: Path, wrong: str, line: int, complaint: str
) -> None:
    entry = wrong + COMPLETE if "[C64]" in wrong else wrong
    (shipped / "zz.yaml").write_text(f"kind: xid\nvendor: nvidia\nsource: test\nentries:\n  - codes: [500]\n{entry}")
    found = complaints(shipped)
    assert len(found) == 1
    assert found[0].startswith(f"{shipped}/zz.yaml:{line}: ")
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ('    companions: ["xid:4711"]\n', "xid:500: names xid:4711, which has no entry"),
        ('    yields_to: ["xid:63"]\n', "xid:500: yields to xid:63, which is never a root"),
        ('    clears: ["check:mood"]\n', "xid:500: is cleared by the check mood, which has no entry"),
    ],
)
def test_references_that_lead_nowhere_are_refused(shipped: Path, field: str, complaint: str) -> None:
    entry = COMPLETE if "clears" not in field else COMPLETE.replace("    clears: [boot]\n", "")
    text = f"kind: xid\nvendor: nvidia\nsource: test\nentries:\n  - codes: [500]\n{entry}{field}"
    (shipped / "zz.yaml").write_text(text)
    assert complaints(shipped) == [f"{shipped}/zz.yaml:5: {complaint}"]


def test_a_code_range_that_runs_backwards_is_refused(shipped: Path) -> None:
    (shipped / "zz.yaml").write_text("kind: xid\nsource: test\nentries:\n  - codes: [90-80]\n")
    assert "range '90-80' must go up" in complaints(shipped)[0]


def test_without_an_answer_to_unknown_codes_the_catalogue_is_refused(shipped: Path) -> None:
    path = shipped / "unknown.yaml"
    lines = [line for line in path.read_text().splitlines() if "kind: nic" not in line]
    path.write_text("\n".join(lines))
    assert complaints(shipped) == [f"{shipped}:1: no entry '*' for unknown codes of kind nic"]


def test_without_an_answer_to_unknown_checks_the_catalogue_is_refused(shipped: Path) -> None:
    path = shipped / "unknown.yaml"
    lines = [line for line in path.read_text().splitlines() if '"component:nic"], subcodes: [fail]' not in line]
    path.write_text(
        "\n".join(lines).replace('"component:kernel", "*"], subcodes: [fail]', '"component:kernel"], subcodes: [fail]')
    )
    assert complaints(shipped) == [f"{shipped}:1: no entry for an unknown check of component nic with status fail"]


def test_sub_codes_that_lines_are_read_as_must_have_entries(shipped: Path) -> None:
    path = shipped / "nvidia_nvlink5_decode.yaml"
    path.write_text(path.read_text().replace("nonfatal: rlw_remap", "nonfatal: rlw_typo"))
    assert complaints(shipped) == [f"{path}:1: sub-code rlw_typo has no entry"]


def test_every_problem_of_every_file_is_listed_at_once(shipped: Path) -> None:
    (shipped / "y1.yaml").write_text("kind: xid\nsource: test\nentries:\n  - codes: [500]\n    role: x\n    scope: y\n")
    (shipped / "y2.yaml").write_text("kind: }")
    found = "\n".join(complaints(shipped))
    assert f"{shipped}/y1.yaml:5: " in found
    assert f"{shipped}/y1.yaml:6: " in found
    assert f"{shipped}/y2.yaml:1: not YAML: " in found


def test_a_broken_list_of_families_or_comparisons_is_refused(shipped: Path) -> None:
    families = shipped / "families.yaml"
    families.write_text(families.read_text().replace("families: [B100, B200, B300]", "families: [B100, H100]"))
    assert "in two generations: H100" in complaints(shipped)[0]
    shutil.copy(SHIPPED_DIRECTORY / "families.yaml", families)
    others = shipped / "others.yaml"
    others.write_text(others.read_text().replace("  restart_bm: [79]\n", "  restart_bm: [79]\n  pray: [80]\n"))
    assert "differ in: pray" in complaints(shipped)[0]


def test_the_error_is_one_that_the_command_line_knows() -> None:
    assert issubclass(CatalogueError, ConfigurationError)


def test_a_long_list_of_problems_is_cut_and_the_rest_counted(site: Callable[[str], Path]) -> None:
    entries = "".join(f"  - {{codes: [{600 + n}], kind: xid}}\n" for n in range(60))
    with pytest.raises(CatalogueError) as refused:
        load_catalogue([site(SITE_HEADER + entries)])
    assert len(refused.value.problems) == 120  # reason and date of each
    assert str(refused.value).endswith("and 70 more")


# --- a site's own ----------------------------------------------------------------------------------------


def test_a_site_changes_only_what_it_names(site: Callable[[str], Path]) -> None:
    directory = site(
        SITE_HEADER
        + "  - {kind: xid, codes: [64], families: [H100], action_hint: replace, reason: asked for, date: 2026-11-02}\n"
    )
    catalogue, ours = load_catalogue([directory]), load_catalogue()
    changed, before = (c.resolve("xid", "64", family="H100") for c in (catalogue, ours))
    assert (changed.action_hint, changed.cause_code) == ("replace", before.cause_code)
    assert changed.entry == before.entry + "+site"
    assert changed.source == "site: asked for (2026-11-02)"
    assert catalogue.resolve("xid", "64", family="A100") == ours.resolve("xid", "64", family="A100")
    assert catalogue.resolve("xid", "64") == ours.resolve("xid", "64")


def test_the_version_says_that_a_site_laid_something_over_and_what(site: Callable[[str], Path]) -> None:
    entry = "  - {kind: xid, codes: [64], action_hint: %s, reason: vendor asks, date: 2026-11-02}\n"
    first = load_catalogue([site(SITE_HEADER + entry % "replace")]).version
    second = load_catalogue([site(SITE_HEADER + entry % "drain")]).version
    assert first.startswith("nvidia-xid 2026-11+site.")
    assert first != second
    assert second == load_catalogue([site(SITE_HEADER + entry % "drain")]).version


def test_a_changed_cause_changes_who_is_charged(site: Callable[[str], Path]) -> None:
    entry = "  - {kind: xid, codes: [109], cause: app.hang, role: application, reason: our kernels, date: 2026-11-02}\n"
    judged = load_catalogue([site(SITE_HEADER + entry)]).resolve("xid", "109", family="H100")
    assert (judged.cause_class, judged.cause_code, judged.role) == ("user", "app.hang", "application")


def test_a_later_directory_is_laid_over_an_earlier_one(tmp_path: Path) -> None:
    directories = []
    for name, hint in (("one", "drain"), ("two", "replace")):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "a.yaml").write_text(
            f"{SITE_HEADER}  - {{kind: xid, codes: [64], action_hint: {hint}, reason: because, date: 2026-11-02}}\n"
        )
        directories.append(directory)
    assert load_catalogue(directories).resolve("xid", "64").action_hint == "replace"
    assert load_catalogue(directories[::-1]).resolve("xid", "64").action_hint == "drain"


def test_a_site_can_define_a_code_that_we_do_not_have(site: Callable[[str], Path]) -> None:
    directory = site(
        f"{SITE_HEADER}  - kind: other\n    codes: [afid_24]\n{COMPLETE}    reason: seen here\n    date: 2026-11-02\n"
    )
    judged = load_catalogue([directory]).resolve("other", "afid_24", family="MI300X")
    assert (judged.known, judged.cause_code) == (True, "gpu.compute")


def test_a_site_can_judge_a_check_otherwise(site: Callable[[str], Path]) -> None:
    entry = (
        "  - {kind: check, codes: [thermal], subcodes: [warn], action_hint: open_ticket,\n"
        "     reason: hot hall, date: 2026-11-02}\n"
    )
    catalogue = load_catalogue([site(SITE_HEADER + entry)])
    assert catalogue.resolve_check("thermal", "cooling", "warn").action_hint == "open_ticket"
    assert catalogue.resolve_check("thermal", "cooling", "fail").action_hint == "drain"


def test_a_site_entry_without_sub_codes_holds_for_all_of_them(site: Callable[[str], Path]) -> None:
    entry = "  - {kind: xid, codes: [149], action_hint: drain, reason: rack policy, date: 2026-11-02}\n"
    catalogue = load_catalogue([site(SITE_HEADER + entry)])
    assert catalogue.resolve("xid", "149", subcode="link_down/local_phy", family="GB200").action_hint == "drain"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("  - {kind: xid, codes: [64], action_hint: drain, date: 2026-11-02}\n", "2: entries.0.reason: Field required"),
        ("  - {kind: xid, codes: [64], action_hint: drain, reason: because}\n", "2: entries.0.date: Field required"),
        (
            "  - {kind: xid, codes: [900], action_hint: drain, reason: because, date: 2026-11-02}\n",
            "2: xid 900 is not in our catalogue: say meaning, cause, role, severity, fatal_to_job, scope, clears too",
        ),
        (
            '  - {kind: xid, codes: [64], yields_to: ["xid:900"], reason: because, date: 2026-11-02}\n',
            "2: names xid:900, which has no entry",
        ),
        (
            "  - {kind: xid, codes: [64], profile: x, reason: because, date: 2026-11-02}\n",
            "2: entries.0: Value error, a site's entry has no profile: write its fields out",
        ),
        ("  - {codes: [64], reason: because, date: 2026-11-02}\n", "2: say `kind`, here or at the top of the file"),
        (
            TWICE,
            "3: xid 64: overlaps the entry at ours.yaml:2; narrow the families or drivers of one, or remove it",
        ),
    ],
)
def test_a_site_entry_that_cannot_be_used_is_refused_with_its_line(
    site: Callable[[str], Path], text: str, complaint: str
) -> None:
    directory = site(SITE_HEADER + text)
    assert site_complaints(directory) == [f"{directory}/ours.yaml:{complaint}"]


def test_a_site_directory_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    expected = "holds 0 catalogue files (*.yaml), expected 1 to 100: give their directory"
    assert site_complaints(tmp_path) == [f"{tmp_path}:1: {expected}"]
    assert site_complaints(tmp_path / "nowhere") == [f"{tmp_path}/nowhere:1: {expected}"]
