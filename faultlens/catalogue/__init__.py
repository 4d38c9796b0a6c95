"""The fault catalogue: what a fault code or failing check means, on which family and driver, as data."""

from faultlens.catalogue.judgement import ActionHint, Judgement, Role, Scope, fault_ref, role_beside
from faultlens.catalogue.loader import CatalogueError, load_catalogue
from faultlens.catalogue.lookup import Catalogue
from faultlens.catalogue.recovery import AnnouncedAction, Announcement, effective_action

__all__ = [
    "ActionHint",
    "AnnouncedAction",
    "Announcement",
    "Catalogue",
    "CatalogueError",
    "Judgement",
    "Role",
    "Scope",
    "effective_action",
    "fault_ref",
    "load_catalogue",
    "role_beside",
]
