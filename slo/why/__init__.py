"""Why a job failed, told for a person at three in the morning: asked of the store, laid out, written down."""

from slo.why.ask import UnknownJobError, story_of
from slo.why.story import Story
from slo.why.text import as_plain, as_text

__all__ = ["Story", "UnknownJobError", "as_plain", "as_text", "story_of"]
