"""What drivers print: recovery steps of Xid 154, and sub-codes of NVLink5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.catalogue import Announcement, effective_action, load_catalogue
from faultlens.catalogue.judgement import ACTION_HINTS, ActionHint

CATALOGUE = load_catalogue()
WINDOW_MS = CATALOGUE.recovery.window_ms


def announced(name: str, at_ms: int) -> Announcement:
    return Announcement(at_ms=at_ms, action=CATALOGUE.recovery.actions[name])


@pytest.mark.parametrize(
    ("text", "name", "hint"),
    [
        ("gpu_reset_required", "gpu_reset_required", "reset_device"),
        ("NODE_REBOOT_REQUIRED", "node_reboot_required", "reboot"),
        ("none", "none", "none"),
        ("2", "node_reboot_required", "reboot"),
        ("drain_p2p", "drain_p2p", "drain"),
        (
            "NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "gpu_reset_required",
            "reset_device",
        ),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "none", "none"),
        ("recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "node_reboot_required", "reboot"),
        ("recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "drain_and_reset", "reset_device"),
        ("recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", "node_reboot_required", "reboot"),
        ("GPU Reset Required", "gpu_reset_required", "reset_device"),
    ],
)  # fmt: skip
def test_the_announced_step_is_read_from_sub_code_or_line(text: str, name: str, hint: str) -> None:
    action = CATALOGUE.announced_action(text)
    assert action is not None
    assert (action.name, action.action_hint) == (name, hint)


@pytest.mark.parametrize(
    "text", [None, "", "NVRM: Xid 154, something else", "(later)", "reset", "from 0x0 (None) to 0x63 (Hope)"]
)
def test_a_text_that_announces_nothing_known_is_no_announcement(text: str | None) -> None:
    assert CATALOGUE.announced_action(text) is None


def test_every_announced_step_has_an_entry_of_xid_154() -> None:
    for name, action in CATALOGUE.recovery.actions.items():
        judged = CATALOGUE.resolve("xid", "154", subcode=name, family="H100")
        assert f"/{name}" in judged.entry
        assert (judged.role, judged.action_hint) == ("informational", action.action_hint)


def test_within_the_window_the_announced_step_wins_over_the_catalogue_milder_or_harder() -> None:
    at_ms = 1_000_000
    near = [announced("node_reboot_required", at_ms + WINDOW_MS)]
    assert effective_action("reset_device", at_ms, near, window_ms=WINDOW_MS) == "reboot"
    recovered = [announced("none", at_ms - 1000)]
    assert effective_action("reset_device", at_ms, recovered, window_ms=WINDOW_MS) == "none"


def test_outside_the_window_the_catalogue_stands() -> None:
    at_ms = 1_000_000
    far = [announced("node_reboot_required", at_ms + WINDOW_MS + 1), announced("none", at_ms - WINDOW_MS - 1)]
    assert effective_action("reset_device", at_ms, far, window_ms=WINDOW_MS) == "reset_device"


def test_the_last_of_several_announcements_wins() -> None:
    at_ms = 1_000_000
    both = [announced("gpu_reset_required", at_ms + 100), announced("none", at_ms + 20_000)]
    assert effective_action("drain", at_ms, both, window_ms=WINDOW_MS) == "none"


@given(
    own=st.sampled_from(ACTION_HINTS),
    announcements=st.lists(
        st.builds(announced, st.sampled_from(sorted(CATALOGUE.recovery.actions)), st.integers(0, 200_000)), max_size=5
    ),
    at_ms=st.integers(0, 200_000),
)
def test_the_effective_step_does_not_depend_on_the_order_of_announcements(
    own: ActionHint, announcements: list[Announcement], at_ms: int
) -> None:
    forward = effective_action(own, at_ms, announcements, window_ms=WINDOW_MS)
    assert forward == effective_action(own, at_ms, announcements[::-1], window_ms=WINDOW_MS)
    assert forward in {own, *(a.action.action_hint for a in announcements)}


@pytest.mark.parametrize(
    ("line", "subcode"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)", "link_down/local_phy"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)", "link_down/remote"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x00f001c6 0x00000000)", "link_down/host"),
        ("149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x000001c6 0x00000000)", "link_down"),
        ("149, pid=7, name=python3, NETIR_BER_EVENT Nonfatal XC0 i0 Link 3 (0x00000013 0x1)", "ber"),
        ("149, NETIR_MFDE_EVENT Fatal XC0 i0 Link -1 (0x00000014 0x1)", "firmware"),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", "rlw/nonfatal"),
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 13 (0x000000e2 0x00000004)", "rlw_remote"),
        ("145, RLW_REMAP Nonfatal XC1 i0 Link 13 (0x00000082 0x00000004)", "rlw_remap"),
        ("145, RLW_REMAP Fatal XC1 i0 Link 13 (0x00000082 0x00000040)", "rlw/fatal"),
        ("146, TLW_RX/TLW_RX_PIPE0 Fatal XC0 i0 Link 1 (0x00000143 0x4)", "tlw/fatal"),
        ("144, SAW_MVB Nonfatal XC0 i0 Link 1 (0x00000021 0x1)", "saw/nonfatal"),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", None),
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", None),
        ("", None),
    ],
)
def test_a_line_of_nvlink5_leads_to_its_sub_code(line: str, subcode: str | None) -> None:
    assert CATALOGUE.nvlink5_subcode(f"NVRM: Xid (PCI:0018:01:00): {line}") == subcode


@given(st.text())
def test_any_line_is_read_without_failing(line: str) -> None:
    assert CATALOGUE.nvlink5_subcode(line) is None or "NETIR" in line
