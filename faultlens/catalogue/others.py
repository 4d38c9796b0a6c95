"""What other systems make of the same codes: NVIDIA's immediate action, EKS, the DRA driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, model_validator

from faultlens.catalogue.judgement import ActionHint
from faultlens.catalogue.model import expanded_codes

_Codes = Annotated[tuple[str, ...], BeforeValidator(expanded_codes)]


class Others(BaseModel):
    """`others.yaml`: the version of our catalogue and the lists it is compared with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Annotated[str, StringConstraints(pattern=r"^[a-z-]+ \d{4}-\d{2}$")]
    nvidia_immediate_action: Mapping[str, _Codes]
    nvidia_agrees_with: Mapping[str, tuple[ActionHint, ...]]
    eks_fatal: _Codes
    dra_ignored: _Codes

    @model_validator(mode="after")
    def _every_action_can_be_compared(self) -> Others:
        missing = self.nvidia_immediate_action.keys() ^ self.nvidia_agrees_with.keys()
        if missing:
            raise ValueError(f"nvidia_agrees_with and nvidia_immediate_action differ in: {', '.join(sorted(missing))}")
        return self

    def nvidia_action(self, code: str) -> str | None:
        """NVIDIA's immediate action for an Xid code, where it depends on the code alone."""
        return next((action for action, codes in self.nvidia_immediate_action.items() if code in codes), None)
