"""The status page: objectives, failures, findings, jobs and nodes, each page one answer from the store."""

from slo.pages.answer import answer
from slo.pages.asked import Asked, Manners, Page
from slo.pages.render import message_page, style

__all__ = ["Asked", "Manners", "Page", "answer", "message_page", "style"]
