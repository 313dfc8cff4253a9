"""The user's browser, where there is one to see."""

import threading
import webbrowser
from collections.abc import Mapping


def desktop(platform: str, environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether somebody sits at this machine who would see a window: `platform` as `sys.platform` has it, `terminal`
    whether standard output is one.  Over SSH a window would open elsewhere, or slowly."""
    if not terminal or environ.get("CI") or environ.get("SSH_CONNECTION"):
        return False
    return platform == "darwin" or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def show(url: str) -> None:
    """Opens `url` in a window of the user's browser.  Returns at once, and says nothing where there is none."""
    # Some browsers return only when they have started; the deployment must be looked after meanwhile.
    threading.Thread(target=_show, args=(url,), name="browser", daemon=True).start()


def _show(url: str) -> None:
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return
    # Exactly this class: one that draws into the terminal (lynx, w3m), where `up` writes.
    if type(found) is not webbrowser.GenericBrowser:
        found.open(url)
