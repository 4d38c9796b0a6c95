"""Lines without a number: each pattern on its own example, and what must not be taken for a fault."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.catalogue import load_catalogue
from faultlens.errors import ConfigurationError
from producers.kernel_log.patterns import PatternEntry, load_patterns, read_patterns

PATTERNS = load_patterns()
ENTRIES = read_patterns().patterns
NAMES = [f"{number}:{entry.kind}:{entry.code}" for number, entry in enumerate(ENTRIES)]
CATALOGUE = load_catalogue()


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_a_pattern_is_the_first_to_find_its_own_example(entry: PatternEntry) -> None:
    found = PATTERNS.worded(entry.example, entry.speaker)
    assert found is not None
    assert (found.kind, found.code, found.subcode) == (entry.kind, entry.code, entry.subcode)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_the_catalogue_knows_every_code_that_a_pattern_gives(entry: PatternEntry) -> None:
    unknown = CATALOGUE.resolve(entry.kind, "no_such_code")
    assert CATALOGUE.resolve(entry.kind, entry.code, subcode=entry.subcode) != unknown


@pytest.mark.parametrize(
    ("text", "pci", "link", "pid", "process"),
    [
        ("NVRM: GPU at 0000:61:00.0: GPU has fallen off the bus.", "0000:61:00.0", None, None, None),
        ("NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x62:0xffff:2351)", "0000:b3:00.0", None, None, None),
        ("Memory cgroup out of memory: Killed process 441 (python3) total-vm:8kB", None, None, 441, "python3"),
        ("Out of memory: Kill process 441 (python3) score 9 or sacrifice child", None, None, 441, "python3"),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,x=y,task=pt main,pid=5,uid=0", None, None, 5, "pt main"),
        ("watchdog: BUG: soft lockup - CPU#41 stuck for 26s! [python3:44123]", None, None, 44123, "python3"),
        ("INFO: task kworker/u256:3:812 blocked for more than 120 seconds.", None, None, 812, "kworker/u256:3"),
        ("pt main[253]: segfault at 7f79 ip 00007f7c sp 0 error 4 in libnccl.so.2", None, None, 253, "pt main"),
        ("traps: python3[99] general protection fault ip:1 sp:2", None, None, 99, "python3"),
        (
            "pcieport 0000:c8:01.0: AER: Uncorrected (Fatal) error received: 0000:c9:00.0",
            "0000:c9:00.0",
            None,
            None,
            None,
        ),
        ("pcieport 0000:c8:01.0: PCIe Bus Error: severity=Corrected, type=Data Link", "0000:c8:01.0", None, None, None),
        ("mlx5_core 0000:41:00.0 enp65s0f0np0: Link down", "0000:41:00.0", "enp65s0f0np0", None, None),
        ("mlx5_3: port 1 state changed to DOWN", None, "mlx5_3", None, None),
    ],
)
def test_the_device_and_the_process_are_read_too(
    text: str, pci: str | None, link: str | None, pid: int | None, process: str | None
) -> None:
    found = PATTERNS.worded(text, "kernel")
    assert found is not None
    assert (found.pci, found.link, found.pid, found.process) == (pci, link, pid, process)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000801152", "mce"),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 9c00000000801152", "mce_corrected"),
        ("EDAC MC3: 1 UE memory read error on DIMM#0", "uncorrectable"),
        ("EDAC MC3: 5 CE memory read error on DIMM#0", "corrected"),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "soft_lockup"),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2", "io_error"),
        ("XFS (nvme0n1p1): Corruption of in-memory data detected.  Shutting down filesystem", "io_error"),
        ("LustreError: 166-1: MGC10.0.0.1@o2ib: Connection to MGS was lost; timed out", "mount_hung"),
    ],
)
def test_what_differs_in_gravity_has_different_codes(text: str, code: str) -> None:
    found = PATTERNS.worded(text, "kernel")
    assert found is not None
    assert found.code == code


@pytest.mark.parametrize(
    "text",
    [
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
        "oom_reaper: reaped process 44123 (python3), now anon-rss:0kB",
        "ata3: SATA link down (SStatus 0 SControl 300)",
        "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0",
        "EDAC skx: 0 CE errors",
        "pcieport 0000:c8:01.0: AER: enabled with IRQ 34",
        "nfs: server filer-3 OK",
        "mlx5_core 0000:41:00.0 enp65s0f0np0: Link up",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
    ],
)
def test_what_goes_on_or_goes_well_is_no_fault(text: str) -> None:
    assert PATTERNS.worded(text, "kernel") is None


def test_a_link_that_is_down_while_the_machine_starts_is_not_yet_up() -> None:
    text = "mlx5_core 0000:41:00.0 enp65s0f0np0: Link down"
    assert PATTERNS.worded(text, "kernel", since_boot_s=12.5) is None
    assert PATTERNS.worded(text, "kernel", since_boot_s=4000.0) is not None
    assert PATTERNS.worded(text, "kernel") is not None


def test_a_program_that_repeats_the_kernels_words_is_not_the_kernel() -> None:
    assert PATTERNS.worded("Kernel panic - not syncing: x", "node-exporter") is None


@given(st.text(max_size=5000))
def test_any_text_is_read_in_reasonable_time(text: str) -> None:
    PATTERNS.worded(text, "kernel")


# --- the file ------------------------------------------------------------------------------------------

GOOD = "patterns:\n  - {kind: kernel, code: x, pattern: 'abc', example: 'abc'}\n"


@pytest.mark.parametrize(
    ("written", "by", "said"),
    [
        ("'abc'", "'ab(c'", "no regular expression"),
        ("'abc'", "'(?P<size>abc)'", "unknown groups size"),
        ("kind: kernel", "kind: gremlin", "kind"),
        ("code: x", "code: X Y", "code"),
        ("{kind", "{strange: 1, kind", "strange"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, written: str, by: str, said: str) -> None:
    path = tmp_path / "patterns.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert len(read_patterns(path).patterns) == 1
    path.write_text(GOOD.replace(written, by, 1), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_patterns(path)
    assert f"{path}:2" in str(caught.value)
