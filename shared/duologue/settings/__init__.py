"""Every setting of every command, and where it comes from: flags, `DUO_…` variables, a settings file, defaults."""

from duologue.settings.errors import BadSetting, nearest
from duologue.settings.load import check_environment, load
from duologue.settings.model import NATS_URL, PORT, Settings
from duologue.settings.services import for_services, of_model
from duologue.settings.show import DEFAULT, Shown, shown, without_credentials
from duologue.settings.table import SETTINGS, Setting, settings_of
from duologue.settings.use import EVERY

__all__ = [
    "DEFAULT",
    "EVERY",
    "NATS_URL",
    "PORT",
    "SETTINGS",
    "BadSetting",
    "Setting",
    "Settings",
    "Shown",
    "check_environment",
    "for_services",
    "load",
    "nearest",
    "of_model",
    "settings_of",
    "shown",
    "without_credentials",
]
