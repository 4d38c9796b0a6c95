"""The map itself: what codes mean on which family, written down a second time and by hand."""

import re
from pathlib import Path

import pytest

from faultlens.catalogue import Catalogue, load_catalogue
from faultlens.catalogue.reference import compact

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "gpu-faults-and-other-systems.md"

CASES = Path(__file__).parents[3] / "shared" / "cases"

# The codes that each family defines; everything else of 1 to 173 is unexpected there.
EVERYWHERE = (
    "8, 11, 13-14, 25, 31-32, 37-41, 43-46, 48, 60, 62-64, 66-72, 75-79, 82-86, 88-89, 92, 94-95, 106-109, "
    "119-120, 137, 140, 154, 158, 168, 171-172"
)
FROM_HOPPER = "96-105, 110, 141, 143, 151, 156-157, 167, 169"
BLACKWELL = "126-135, 139, 144-150, 155, 159-166, 170"
DEFINED = {
    "A100": f"{EVERYWHERE}, 54, 74, 80, 93",
    "H100": f"{EVERYWHERE}, {FROM_HOPPER}, 54, 74, 80, 136",
    "GH200": f"{EVERYWHERE}, {FROM_HOPPER}, 54, 74, 80, 121, 136, 173",
    "B200": f"{EVERYWHERE}, {FROM_HOPPER}, {BLACKWELL}, 54",
    "GB200": f"{EVERYWHERE}, {FROM_HOPPER}, {BLACKWELL}, 121, 142, 173",
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def spelt_out(codes: str) -> set[int]:
    found: set[int] = set()
    for part in codes.split(", "):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def defined(catalogue: Catalogue, family: str) -> set[int]:
    return {code for code in range(1, 174) if catalogue.resolve("xid", str(code), family=family).known}


@pytest.mark.parametrize("family", DEFINED)
def test_a_family_defines_exactly_the_codes_that_its_vendor_lists_for_it(catalogue: Catalogue, family: str) -> None:
    assert defined(catalogue, family) == spelt_out(DEFINED[family])


@pytest.mark.parametrize("family", DEFINED)
def test_a_code_that_a_family_does_not_define_is_held_for_a_person(catalogue: Catalogue, family: str) -> None:
    for code in set(range(1, 174)) - spelt_out(DEFINED[family]):
        judged = catalogue.resolve("xid", str(code), family=family)
        assert (judged.role, judged.cause_code, judged.cause_class) == ("unexpected", "gpu.unknown", "hardware")
        assert judged.action_hint == "block_new_work"


@pytest.mark.parametrize(
    ("codes", "role", "cause"),
    [
        ("13, 31, 108, 137", "application", "app.illegal_access"),
        ("8, 11, 25, 32, 39-41, 68-72, 75-77, 80, 82-86, 88-89, 96-105", "application", "app.cuda_error"),
        ("43, 45", "sympathetic", "app.cuda_error"),
        ("37-38, 44, 66-67, 141", "informational", "driver.internal"),
        ("14", "informational", "platform.runtime.agent"),
        ("46, 109, 158", "root", "gpu.compute.timeout"),
        ("48, 140, 168", "root", "gpu.memory.uncorrectable"),
        ("64", "root", "gpu.memory.remap_failed"),
        ("94", "root", "gpu.memory.contained"),
        ("95", "root", "gpu.memory.uncontained"),
        ("62, 169", "root", "gpu.firmware.microcontroller"),
        ("79", "root", "gpu.off_bus"),
        ("74", "root", "fabric.nvlink.link"),
        ("136", "root", "fabric.nvlink.training"),
        ("119-120", "root", "driver.gsp"),
        ("143", "root", "gpu.compute.initialisation"),
        ("54", "root", "host.power.cable"),
        ("167", "root", "host.pcie.timeout"),
        ("63, 156", "trend", "gpu.memory.remap_pending"),
        ("92", "trend", "gpu.memory.correctable"),
        ("157", "trend", "gpu.memory.spares_exhausted"),
        ("171-172", "sympathetic", "gpu.memory.uncorrectable"),
    ],
)
def test_codes_mean_what_was_agreed_on_h100(catalogue: Catalogue, codes: str, role: str, cause: str) -> None:
    for code in spelt_out(codes):
        judged = catalogue.resolve("xid", str(code), family="H100")
        assert (code, judged.role, judged.cause_code) == (code, role, cause)


def test_every_sub_code_of_the_contract_is_judged_by_its_own_entry(catalogue: Catalogue) -> None:
    named = {
        "154": ["gpu_reset_required", "node_reboot_required", "drain_p2p", "drain_and_reset", "none"],
        "149": ["link_down/local_phy", "link_down/remote"],
        "145": ["rlw_remote"],
    }
    for code, subcodes in named.items():
        for subcode in subcodes:
            assert f"xid:{code}/{subcode}" in catalogue.resolve("xid", code, subcode=subcode, family="GB200").entry


def test_the_end_of_a_link_that_saw_the_other_end_fail_is_never_the_root(catalogue: Catalogue) -> None:
    for code, subcode, family in [
        ("149", "link_down/remote", "GB200"),
        ("145", "rlw_remote", "GB200"),
        ("74", "peer", "H100"),
    ]:
        assert catalogue.resolve("xid", code, subcode=subcode, family=family).role == "sympathetic"
    assert catalogue.resolve("xid", "149", subcode="link_down/local_phy", family="GB200").role == "root"


def test_63_and_64_speak_of_pages_before_ampere_and_of_rows_since(catalogue: Catalogue) -> None:
    assert "page" in catalogue.resolve("xid", "63", family="V100").meaning
    assert "Row" in catalogue.resolve("xid", "63", family="A100").meaning
    assert "page" in catalogue.resolve("xid", "64", family="V100").meaning


def test_64_and_95_ask_for_more_on_a100_than_on_h100(catalogue: Catalogue) -> None:
    hints = {
        (code, family): catalogue.resolve("xid", code, family=family).action_hint
        for code in ("64", "95")
        for family in ("A100", "H100")
    }
    assert hints == {
        ("64", "A100"): "drain",
        ("64", "H100"): "reset_device",
        ("95", "A100"): "reboot",
        ("95", "H100"): "reset_device",
    }


def test_a_link_that_is_down_after_a_healthy_start_is_only_excused_on_grace_blackwell(catalogue: Catalogue) -> None:
    assert catalogue.resolve("nvlink", "link_down", family="GB200").boot_phase_s == 300
    assert catalogue.resolve("nvlink", "link_down", family="H100").boot_phase_s == 0
    assert catalogue.resolve("nvlink", "link_down", family="H100").role == "root"


def test_sxid_scope_decides_how_far_the_answer_goes(catalogue: Catalogue) -> None:
    scopes = {
        subcode: catalogue.resolve("sxid", "11001", subcode=subcode, family="H100")
        for subcode in (None, "access", "trunk")
    }
    assert (scopes["access"].scope, scopes["access"].action_hint) == ("link", "reset_device")
    assert (scopes["trunk"].scope, scopes["trunk"].cause_code) == ("fabric", "fabric.nvswitch.fatal")
    assert (scopes[None].scope, scopes[None].action_hint) == ("fabric", "block_new_work")


def test_blackwell_fabrics_do_not_report_sxid_so_one_there_is_unexpected(catalogue: Catalogue) -> None:
    assert catalogue.resolve("sxid", "12028", family="H100").cause_code == "driver.fabric_manager"
    assert catalogue.resolve("sxid", "12028", family="B200").role == "unexpected"


def test_wrong_results_act_late_and_a_lost_gpu_at_once(catalogue: Catalogue) -> None:
    assert catalogue.resolve("other", "compute_mismatch", family="H100").acts_late
    assert not catalogue.resolve("xid", "79", family="H100").acts_late


def test_the_severity_of_competing_roots_is_ranked_as_documented(catalogue: Catalogue) -> None:
    falling = [
        ("kernel", "panic"),
        ("xid", "79"),
        ("xid", "95"),
        ("xid", "48"),
        ("xid", "119"),
        ("fabric_manager", "not_running"),
        ("xid", "74"),
        ("nic", "link_down"),
        ("xid", "999"),
        ("storage", "full"),
        ("xid", "31"),
        ("xid", "63"),
        ("xid", "45"),
        ("xid", "37"),
    ]
    severities = [catalogue.resolve(kind, code, family="H100").severity for kind, code in falling]
    assert severities == sorted(severities, reverse=True)
    assert len(set(severities)) == len(severities)


def test_nothing_that_ends_no_job_is_a_root_and_no_trend_ends_jobs(catalogue: Catalogue) -> None:
    for _, _, entry in catalogue.shipped_entries():
        judged = entry.content
        if judged.role in {"trend", "informational"}:
            assert not judged.fatal_to_job, judged.entry
        if judged.role == "informational":
            assert judged.severity == 0, judged.entry


def test_nothing_unexpected_is_answered_by_a_reset_on_a_guess(catalogue: Catalogue) -> None:
    hints = {e.content.action_hint for _, _, e in catalogue.shipped_entries() if e.content.role == "unexpected"}
    assert hints == {"block_new_work"}


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared reference is not here")
@pytest.mark.parametrize("family", ["A100", "H100", "B100", "GB200"])
def test_the_map_agrees_with_the_reference_table_of_xid_codes(catalogue: Catalogue, family: str) -> None:
    since = {
        "all 4": {"A100", "H100", "B100", "GB200"},
        "H100+": {"H100", "B100", "GB200"},
        "Blackwell": {"B100", "GB200"},
    }
    expected: set[int] = set()
    for codes, applies in re.findall(r"^\| (\d+(?:-\d+)?) \| ([^|]+) \|", REFERENCE.read_text(), re.MULTILINE):
        families = since.get(applies.strip(), set(applies.strip().split(",")))
        if family in families:
            expected |= spelt_out(codes)
    ours = defined(catalogue, family) - {173}  # gpud has it, NVIDIA's table does not
    assert compact(map(str, ours)) == compact(map(str, expected))


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_of_all_faults_in_the_cases_only_the_two_made_for_it_are_unknown(catalogue: Catalogue) -> None:
    pattern = re.compile(
        r'"kind": ?"(?P<kind>\w+)", ?"code": ?"(?P<code>\w+)"',
    )
    seen = {
        (found["kind"], found["code"])
        for path in CASES.glob("*/*/events.jsonl")
        for found in pattern.finditer(path.read_text())
    }
    assert len(seen) > 20
    unknown = {name for name in seen if not catalogue.resolve(*name, family="A100").known}
    assert unknown == {("xid", "999"), ("xid", "136")}
