"""Looking up: unknown codes, families, drivers and checks always get an answer that is never `healthy`."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.catalogue import Catalogue, fault_ref, load_catalogue, role_beside
from faultlens.catalogue.lookup import REMEMBERED, driver_branch
from faultlens.causes import CAUSES
from faultlens.events import FAULT_KINDS, Component

CATALOGUE = load_catalogue()
FAMILIES = [None, "", "H100", "GB200", "MI300X", "Trainium2", "NVIDIA A100-SXM4-80GB", "B9999", "ß"]
KINDS = sorted(FAULT_KINDS)
NAMES = ["gpu_count", "ecc", "driver_responds", "validation", "clock", "mounts", "brand_new_check"]
COMPONENTS = list(get_args(Component))
UNHEALTHY = ["fail", "timeout", "error", "missing", "warn"]

codes = st.one_of(
    st.integers(-5, 200).map(str), st.integers(9_000, 31_000).map(str), st.sampled_from(["dbe", "", "*"]), st.text()
)


@given(
    kind=st.one_of(st.sampled_from(KINDS), st.text()),
    code=codes,
    subcode=st.none() | st.text() | st.sampled_from(["link_down/local_phy", "/", "a//b"]),
    family=st.sampled_from(FAMILIES) | st.text(),
    driver=st.none() | st.text() | st.sampled_from(["570.133.20", "535", "9.9"]),
)
def test_any_code_of_any_kind_gets_a_cause_of_the_registry(
    kind: str, code: str, subcode: str | None, family: str | None, driver: str | None
) -> None:
    judged = CATALOGUE.resolve(kind, code, subcode=subcode, family=family, driver=driver)
    assert CAUSES[judged.cause_code].cause_class == judged.cause_class
    assert 0 <= judged.severity <= 100
    assert judged.clears
    assert judged == CATALOGUE.resolve(kind, code, subcode=subcode, family=family, driver=driver)


@given(
    name=st.one_of(st.sampled_from(NAMES), st.text()),
    component=st.one_of(st.sampled_from(COMPONENTS), st.text()),
    status=st.one_of(st.sampled_from(UNHEALTHY), st.text().filter(lambda word: word not in {"pass", "off"})),
    code=st.none() | st.text(),
)
def test_any_check_that_did_not_pass_is_a_condition_cleared_by_its_own_passing(
    name: str, component: str, status: str, code: str | None
) -> None:
    judged = CATALOGUE.resolve_check(name, component, status, code)
    assert CAUSES[judged.cause_code].cause_class == judged.cause_class
    assert f"check:{name}" in judged.clears


@pytest.mark.parametrize("status", ["pass", "off"])
def test_a_check_that_passed_has_nothing_to_judge(status: str) -> None:
    with pytest.raises(ValueError, match="there is no condition to judge"):
        CATALOGUE.resolve_check("ecc", "gpu", status)


@pytest.mark.parametrize(
    ("name", "component", "status", "code", "role", "cause"),
    [
        ("gpu_count", "gpu", "fail", "missing_gpu", "root", "gpu.off_bus"),
        ("gpu_count", "gpu", "timeout", None, "root", "driver.hang"),
        ("gpu_count", "gpu", "missing", None, "root", "driver.missing"),
        ("driver_responds", "driver", "timeout", None, "root", "driver.hang"),
        ("driver_responds", "driver", "fail", "gsp_timeout", "root", "driver.gsp"),
        ("driver_responds", "driver", "error", "library_mismatch", "root", "driver.mismatch"),
        ("driver_responds", "driver", "missing", None, "root", "driver.missing"),
        ("ecc", "gpu", "fail", "volatile_dbe", "root", "gpu.memory.uncorrectable"),
        ("ecc", "gpu", "fail", "some_new_word", "root", "gpu.memory.uncorrectable"),
        ("ecc", "gpu", "fail", "uncontained", "root", "gpu.memory.uncontained"),
        ("ecc", "gpu", "missing", None, "root", "driver.missing"),
        ("nvlink", "gpu", "fail", None, "root", "fabric.nvlink.link"),
        ("mounts", "storage", "fail", "stale_mount", "root", "platform.storage.mount"),
        ("mounts", "storage", "timeout", None, "root", "platform.storage.mount"),
        ("efa_links", "nic", "fail", "link_down", "root", "network.link.down"),
        ("ib_links", "nic", "fail", "links_missing", "root", "network.nic"),
        ("efa_links", "nic", "timeout", None, "root", "driver.hang"),
        ("fabric_manager", "driver", "fail", "not_running", "root", "driver.fabric_manager"),
        ("host_memory", "memory", "fail", "uncorrectable", "root", "host.memory.uncorrectable"),
        ("local_disk", "storage", "fail", "read_only_fs", "root", "host.storage.read_only"),
        ("container_runtime", "runtime", "fail", None, "root", "platform.runtime.container"),
        ("thermal", "cooling", "fail", None, "root", "gpu.thermal.slowdown"),
        ("kernel_log", "kernel", "missing", None, "root", "platform.runtime.agent"),
        ("validation", "agent", "missing", None, "informational", "platform.runtime"),
        ("validation", "agent", "fail", None, "unexpected", "gpu.unknown"),
        ("clock", "kernel", "fail", None, "informational", "platform.runtime.clock"),
        ("brand_new", "storage", "fail", None, "unexpected", "host.storage"),
        ("brand_new", "gpu", "timeout", None, "root", "driver.hang"),
        ("brand_new", "gpu", "missing", None, "root", "driver.missing"),
        ("brand_new", "agent", "error", None, "root", "platform.runtime.agent"),
        ("brand_new", "gpu", "warn", None, "trend", "gpu.unknown"),
        ("brand_new", "gpu", "a_status_of_next_year", None, "root", "driver.internal"),
    ],
)  # fmt: skip
def test_a_failing_check_means_what_was_agreed(
    name: str, component: str, status: str, code: str | None, role: str, cause: str
) -> None:
    judged = CATALOGUE.resolve_check(name, component, status, code)
    assert (judged.role, judged.cause_code) == (role, cause)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("component", ["gpu", "nvswitch", "nic", "pcie"])
@pytest.mark.parametrize("status", ["timeout", "error", "missing"])
def test_not_knowing_never_accuses_the_device(name: str, component: str, status: str) -> None:
    assert CATALOGUE.resolve_check(name, component, status).cause_class in {"driver", "platform"}


def test_an_unknown_family_gets_the_meaning_of_the_families_that_define_the_code() -> None:
    assert CATALOGUE.resolve("xid", "136").cause_code == "fabric.nvlink.training"
    assert CATALOGUE.resolve("xid", "136", family="Z9000") == CATALOGUE.resolve("xid", "136", family=None)
    assert CATALOGUE.resolve("xid", "136", family="A100").role == "unexpected"


def test_of_several_meanings_an_unknown_family_gets_the_one_that_most_families_share() -> None:
    assert CATALOGUE.resolve("xid", "95").action_hint == CATALOGUE.resolve("xid", "95", family="H100").action_hint
    assert CATALOGUE.resolve("xid", "95", family="A100").action_hint == "reboot"


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("gb200", "GB200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("trainium2", "Trainium2"),
        ("TITAN", None),
        ("", None),
    ],
)
def test_a_family_is_recognised_in_what_drivers_print(text: str, family: str | None) -> None:
    assert CATALOGUE.families.canonical(text) == family


def test_a_code_is_recognised_however_it_is_written() -> None:
    assert CATALOGUE.resolve("xid", " 079 ") == CATALOGUE.resolve("xid", "79")
    assert CATALOGUE.resolve("nic", "LINK_DOWN") == CATALOGUE.resolve("nic", "link_down")


def test_a_sub_code_without_an_entry_falls_back_to_the_more_general_one() -> None:
    general = CATALOGUE.resolve("xid", "149", subcode="link_down", family="GB200")
    assert CATALOGUE.resolve("xid", "149", subcode="link_down/new_reason", family="GB200") == general
    assert CATALOGUE.resolve("xid", "149", subcode="new_unit", family="GB200") == CATALOGUE.resolve(
        "xid", "149", family="GB200"
    )


def test_a_code_of_one_vendor_on_the_device_of_another_is_unexpected() -> None:
    assert CATALOGUE.resolve("xid", "79", family="MI300X").role == "unexpected"
    assert CATALOGUE.resolve("gpu_memory", "ras_uncorrectable", family="MI300X").role == "root"


@pytest.mark.parametrize(
    ("version", "branch"),
    [("570.133.20", 570), ("570", 570), (" 575.51.03", 575), ("1.2", None), ("", None), (None, None), ("9" * 99, None)],
)
def test_the_branch_is_the_first_number_of_a_driver_version(version: str | None, branch: int | None) -> None:
    assert driver_branch(version) == branch


def test_what_is_remembered_of_codes_out_of_logs_is_bounded() -> None:
    catalogue = load_catalogue()
    for number in range(REMEMBERED + 500):
        catalogue.resolve("xid", f"junk {number}")
    assert catalogue._resolve.cache_info().currsize == REMEMBERED


def test_a_lookup_that_was_made_before_is_not_made_again() -> None:
    catalogue = load_catalogue()
    for _ in range(5):
        catalogue.resolve("xid", "79", family="H100", driver="570.133.20")
    assert catalogue._resolve.cache_info().misses == 1


# --- companions ------------------------------------------------------------------------------------------


def beside(code: str, *others: str, catalogue: Catalogue = CATALOGUE) -> str:
    near = frozenset(fault_ref("xid", other) for other in others)
    return role_beside(catalogue.resolve("xid", code, family="H100"), near)


def test_94_and_95_are_roots_alone_and_consequences_beside_48() -> None:
    assert beside("94") == beside("95") == "root"
    assert beside("94", "48", "63") == beside("95", "48") == "sympathetic"


def test_a_recorded_remap_does_not_take_the_blame_from_an_uncontained_error() -> None:
    assert beside("95", "63") == "root"


def test_a_link_error_yields_to_the_gpu_that_is_gone_at_the_other_end() -> None:
    assert beside("74", "79") == "sympathetic"
    assert beside("79", "74") == "root"
    assert beside("74", "45", "43") == "root"


def test_the_errors_of_a_program_stay_its_own_beside_other_codes() -> None:
    assert beside("31", "79") == "application"


def test_no_two_roots_yield_to_each_other_on_one_family() -> None:
    for family in ("A100", "H100", "GB200"):
        judged = {str(c): CATALOGUE.resolve("xid", str(c), family=family) for c in range(1, 174)}
        for code, judgement in judged.items():
            for ref in judgement.yields_to:
                other = judged.get(ref.removeprefix("xid:"))
                assert other is None or f"xid:{code}" not in other.yields_to, (family, code, ref)
