"""Xid and SXid lines: the code, the device, who used it, and the detail that is written in numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.catalogue import load_catalogue
from producers.kernel_log.xid import Numbered, normal_pci, numbered, nvlink_subcode, told_by_manager

CATALOGUE = load_catalogue()
PCI = "0000:9b:00.0"


def found(rest: str) -> Numbered | None:
    return numbered(f"NVRM: Xid (PCI:0000:9b:00): {rest}", CATALOGUE)


def xid(rest: str) -> Numbered:
    told = found(rest)
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
            Numbered("xid", "79", PCI, pid=1234, process="python3"),
        ),
        (
            "NVRM: Xid (PCI:0000:9b:00): 43, pid=2924364, name=pt main, Ch 00000008",
            Numbered("xid", "43", PCI, pid=2924364, process="pt main"),
        ),
        (
            "NVRM: Xid (PCI:0000:38:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception",
            Numbered("xid", "13", "0000:38:00.0"),
        ),
        ("NVRM: Xid (0000:03:00): 6, PE0001", Numbered("xid", "6", "0000:03:00.0")),
        ("NVRM: Xid (PCI:0002:00:00): 48, DBE", Numbered("xid", "48", "0002:00:00.0")),
        (
            "NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 13, pid=4, name=a, Graphics",
            Numbered("xid", "13", PCI, pid=4, process="a"),
        ),
        ("NVRM: Xid (PCI:0000:9b:00): 8", Numbered("xid", "8", PCI)),
        ("NVRM: Xid (PCI:0000:9b:00): 31, pid=99, Ch 8", Numbered("xid", "31", PCI, pid=99)),
        (
            "[ 12.000000] NVRM: Xid (PCI:0000:9B:00): 94, Contained: CE User Channel (0x9). RST: No",
            Numbered("xid", "94", PCI),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
            Numbered("sxid", "12028", "0000:05:00.0", link=32),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            Numbered("sxid", "20034", "0000:c1:00.0", link=30),
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10003, Fatal, x", Numbered("sxid", "10003", "0000:c1:00.0")),
    ],
)
def test_a_code_is_read_with_its_device_and_its_user(text: str, told: Numbered) -> None:
    assert numbered(text, CATALOGUE) == told


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-8e36-4b62-8a3b-b4b1dd44f5dc",
        "NVRM: Xid (PCI:0000:9b:00): none",
        "previous Xid 79 on this node",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x0080000, 0x000000, 0x000000}",
    ],
)
def test_lines_that_only_speak_of_codes_carry_none(text: str) -> None:
    assert numbered(text, CATALOGUE) is None


@pytest.mark.parametrize(
    ("rest", "subcode"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "gpu_reset_required"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "node_reboot_required"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", "node_reboot_required"),
        ("GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", "drain_p2p"),
        ("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "drain_and_reset"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "none"),
        ("pid='<unknown>', name=<unknown>, GPU recovery action changed to (Drain P2P)", "drain_p2p"),
        ("GPU recovery action changed from 0x0 (None) to 0x9 (Something New)", None),
        ("something else entirely", None),
    ],
)
def test_154_says_what_to_do_next(rest: str, subcode: str | None) -> None:
    assert xid(f"154, {rest}").subcode == subcode


@pytest.mark.parametrize(
    ("rest", "subcode", "link"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 17 (0x004505c6 0x80000000 0x0 0x0 0x0 0x0)", "link_down/local_phy", 17),
        ("149, pid=8, name=a, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x020005c6 0x0)", "link_down/remote", 8),
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 13 (0x000000e2 0x00000004)", "rlw_remote", 13),
        ("144, SAW_MVB Fatal XC0 i0 Link -1 (0x1 0x2)", "saw/fatal", None),
        ("147, TLW_RX Nonfatal XC0 i0 Link 02 (0x1 0x2)", "tlw/nonfatal", 2),
        ("150, NEW_UNIT Fatal XC0 i0 Link 02 (0x1 0x2)", None, 2),
    ],
)
def test_nvlink5_codes_are_decoded_by_the_unit_that_reported(rest: str, subcode: str | None, link: int | None) -> None:
    told = xid(rest)
    assert (told.code, told.subcode, told.link) == (rest[:3], subcode, link)


@pytest.mark.parametrize(
    ("register", "bit", "subcode"),
    [
        (0, 4, "parity"),
        (2, 6, "parity"),
        (4, 18, "parity"),
        (0, 21, "signal_integrity"),
        (0, 8, None),
        (0, 1, "unexplained"),
        (3, 31, "unexplained"),
        (6, 5, None),
    ],
)
def test_74_is_decoded_by_the_bits_of_its_registers(register: int, bit: int, subcode: str | None) -> None:
    registers = ", ".join(hex(1 << bit) if number == register else "0x0" for number in range(7))
    told = xid(f"74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6({registers})")
    assert (told.subcode, told.link) == (subcode, 6)


def test_the_gravest_bit_of_74_decides_and_other_lines_of_it_have_none() -> None:
    assert nvlink_subcode("link 2(0x200010, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)") == "parity"
    assert nvlink_subcode("NVLink: fatal error detected on link 6(0x0, 0x0)") is None
    assert nvlink_subcode("link 6(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x123456789)") is None


def test_the_fabric_manager_repeats_codes_of_switches() -> None:
    line = "ERROR: detected NVSwitch {} error 12028 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3{}"
    at = "0000:86:00.0"
    assert told_by_manager(line.format("non-fatal", " port 61")) == Numbered("sxid", "12028", at, link=61)
    assert told_by_manager(line.format("fatal", "")) == Numbered("sxid", "12028", at)
    assert told_by_manager("INFO: multicast group 0 is allocated") is None


@pytest.mark.parametrize(
    "text", ["0000:9b:00", "0000:9B:00.0", "00000000:9B:00.0", "9b:00.0", "0:9b:0", " 0000:9b:00.0 "]
)
def test_an_address_has_one_form(text: str) -> None:
    assert normal_pci(text) == PCI


ADDRESSES = st.tuples(st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))


@given(ADDRESSES, ADDRESSES)
def test_two_addresses_are_the_same_only_if_their_numbers_are(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    def text(address: tuple[int, int, int, int], wide: int) -> str:
        return f"{address[0]:0{wide}X}:{address[1]:02x}:{address[2]:02X}.{address[3]}"

    assert normal_pci(text(one, 8)) == normal_pci(text(one, 4)) == normal_pci(normal_pci(text(one, 4)))
    assert (normal_pci(text(one, 4)) == normal_pci(text(other, 4))) == (one == other)


@given(st.text(max_size=120))
def test_no_rest_of_a_line_is_too_odd(rest: str) -> None:
    told = xid(f"74, {rest}")
    assert told.code == "74"
    xid(f"154, {rest}")
    xid(f"149, {rest}")
