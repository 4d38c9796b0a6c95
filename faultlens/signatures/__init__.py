"""Log signatures: what programs, drivers and schedulers print when a job fails, and what it is evidence of."""

from faultlens.signatures.decide import Alternative, LogBasis, LogVerdict, decide
from faultlens.signatures.loader import SignatureError, compile_signatures, load_signatures
from faultlens.signatures.matcher import SignatureSet
from faultlens.signatures.model import Match, Role, Scope, Signature, Strength, Where

__all__ = [
    "Alternative",
    "LogBasis",
    "LogVerdict",
    "Match",
    "Role",
    "Scope",
    "Signature",
    "SignatureError",
    "SignatureSet",
    "Strength",
    "Where",
    "compile_signatures",
    "decide",
    "load_signatures",
]
