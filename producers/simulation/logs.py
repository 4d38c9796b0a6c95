"""What programs print: texts made from templates, with the noise that stands around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from producers.simulation.chance import happens

_NOISE: Final = "noise"
_TRAILER: Final = "trailer"
_MOST_NOISE: Final = 4
_TRAILED: Final = 0.25
_FOLDERS: Final = ("/workspace/src", "/app", "/home/{u}/code", "/opt/project", "/mnt/code/{u}", "/job", "/src/exp")
_FILES: Final = (
    "train.py", "trainer.py", "model.py", "data.py", "loader.py", "engine.py", "finetune.py", "losses.py",
    "pipeline.py", "layers.py", "optim.py", "run_eval.py", "main.py", "collate.py", "schedule.py", "attention.py",
)  # fmt: skip
_FUNCTIONS: Final = (
    "main", "train", "train_one_epoch", "forward", "training_step", "fit", "run", "setup", "build_model", "collate",
    "prepare_batch", "compute_loss", "evaluate", "load_shard", "step", "optimizer_step", "__init__", "__getitem__",
)  # fmt: skip
_WORDS: Final = (
    "tokens", "labels", "mask", "hidden", "logits", "bbox", "audio", "features", "positions", "rewards", "scores",
    "weights", "embeddings", "targets", "input_ids", "meta", "frames", "prompt", "queries", "caption",
)  # fmt: skip
_MODULES: Final = ("apex", "flash_attn", "deepspeed", "einops", "wandb", "sentencepiece", "xformers", "megablocks")


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that is about to be printed, by one rank or by many: what is made up for it is the same for all."""

    template: str
    made_up: dict[str, object] = field(default_factory=dict)


class Texts:
    """Renders the templates of a group; what a template names and nobody gave is made up."""

    def __init__(self, groups: Mapping[str, tuple[str, ...]], rng: Random) -> None:
        self._groups = groups
        self._rng = rng

    def draft(self, group: str) -> Draft:
        """Return one text of a group, to be printed."""
        return Draft(self._rng.choice(self._groups[group]))

    def line(self, template: str, **known: object) -> str:
        """Return a template with its blanks filled in."""
        return template.format_map(_Blanks(self._rng, known, {}))

    def tail(self, draft: Draft, **known: object) -> str:
        """Return the end of a log: some noise, the text, and sometimes what a launcher prints after it."""
        rng = self._rng
        lines = [self.line(rng.choice(self._groups[_NOISE]), **known) for _ in range(rng.randrange(_MOST_NOISE))]
        lines.append(draft.template.format_map(_Blanks(rng, known, draft.made_up)))
        if happens(rng, _TRAILED):
            lines.append(self.line(rng.choice(self._groups[_TRAILER]), **known))
        return "\n".join(lines)


class _Blanks(dict[str, object]):
    """What is known, and what is made up once it is asked for."""

    def __init__(self, rng: Random, known: Mapping[str, object], made_up: dict[str, object]) -> None:
        super().__init__(known)
        self._rng = rng
        self._made_up = made_up

    def __missing__(self, blank: str) -> object:
        if blank not in self._made_up:
            self._made_up[blank] = _FILLERS[blank.rstrip("0123456789")](self._rng)
        return self._made_up[blank]


def _file(rng: Random) -> str:
    return f"{rng.choice(_FOLDERS).format(u=f'u{rng.randrange(400)}')}/{rng.choice(_FILES)}"


def _frame(rng: Random) -> str:
    return f'  File "{_file(rng)}", line {rng.randrange(12, 900)}, in {rng.choice(_FUNCTIONS)}'


def _small(rng: Random) -> int:
    return rng.randrange(2, 4_096)


_FILLERS: Final[dict[str, Callable[[Random], object]]] = {
    "file": _file,
    "frames": lambda rng: "\n".join(_frame(rng) for _ in range(rng.randrange(1, 4))),
    "word": lambda rng: rng.choice(_WORDS),
    "module": lambda rng: rng.choice(_MODULES),
    "n": _small,
    "seq": _small,
    "rank": _small,
    "device": _small,
    "step": lambda rng: rng.randrange(10, 90_000),
    "gib": lambda rng: f"{rng.uniform(0.5, 30):.2f}",
    "big": lambda rng: rng.randrange(10**6, 10**8),
    "hex": lambda rng: f"{rng.getrandbits(48):012x}",
    "float": lambda rng: f"{rng.uniform(0.01, 12):.4f}",
    "port": lambda rng: rng.randrange(20_000, 61_000),
    "pid": lambda rng: rng.randrange(1_500, 400_000),
    "ip": lambda rng: f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}",
}
