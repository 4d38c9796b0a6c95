"""The cause-code registry against the contract's list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.causes import CAUSE_CLASSES, CAUSES, UnknownCauseError, class_of, is_known, title_of

# Copied from the contract by hand: the registry may grow, these may never go.
CONTRACT_CODES = [
    "gpu.memory",
    "gpu.off_bus",
    "gpu.compute",
    "gpu.thermal",
    "gpu.firmware",
    "gpu.unknown",
    "gpu.memory.uncorrectable",
    "fabric.nvlink",
    "fabric.nvswitch",
    "network.nic",
    "network.link",
    "host.memory",
    "host.cpu",
    "host.power",
    "host.storage",
    "host.pcie",
    "host.lost",
    "driver.gsp",
    "driver.mismatch",
    "driver.hang",
    "driver.fabric_manager",
    "platform.registry",
    "platform.storage",
    "platform.scheduler",
    "platform.eviction",
    "platform.maintenance",
    "platform.network",
    "platform.runtime",
    "platform.power",
    "platform.cooling",
    "platform.auth",
    "platform.control_plane",
    "platform.remediation",
    "app.exception",
    "app.crash",
    "app.oom.gpu",
    "app.oom.host",
    "app.illegal_access",
    "app.config",
    "app.data",
    "app.dependency",
    "app.time_limit",
    "app.hang",
    "app.numerics",
    "app.cuda_error",
]


@pytest.mark.parametrize("code", CONTRACT_CODES)
def test_every_code_of_the_contract_is_known(code: str) -> None:
    assert is_known(code)


@pytest.mark.parametrize(
    ("code", "cause_class"),
    [
        ("gpu.off_bus", "hardware"),
        ("fabric.nvlink.link", "hardware"),
        ("network.link", "hardware"),
        ("host.lost", "hardware"),
        ("driver.gsp", "driver"),
        ("platform.network.dns", "platform"),
        ("app.oom.gpu", "user"),
        ("app.exception.something_new", "user"),
    ],
)
def test_the_first_word_decides_who_is_charged(code: str, cause_class: str) -> None:
    assert class_of(code) == cause_class


def test_every_code_has_a_class_and_a_title() -> None:
    for code, info in CAUSES.items():
        assert info.cause_class in CAUSE_CLASSES
        assert info.cause_class == class_of(code)
        assert info.title == title_of(code) != code


def test_every_special_code_has_its_general_one_in_the_registry() -> None:
    first_two_words = {code: ".".join(code.split(".")[:2]) for code in CAUSES}
    assert {general for general in first_two_words.values() if general not in CAUSES} == set()


def test_a_code_of_no_class_is_refused_with_the_words_that_are_known() -> None:
    with pytest.raises(UnknownCauseError, match=r"'weather\.rain' begins with none of: gpu, fabric"):
        class_of("weather.rain")


def test_a_code_more_special_than_the_registry_takes_the_title_of_its_parent() -> None:
    assert title_of("gpu.memory.uncorrectable.bank_7") == "Uncorrectable GPU memory error"
    assert title_of("weather.rain") == "weather.rain"


@given(st.sampled_from(sorted(CAUSES)), st.text(alphabet="abcz_", min_size=1))
def test_making_a_code_more_special_never_changes_its_class(code: str, word: str) -> None:
    assert class_of(f"{code}.{word}") == class_of(code)
