#!/usr/bin/env python3
"""Opens a page of `vramscope report --html` in headless Chromium, offline, and uses it: mouse, wheel, keys, fingers, a
picked moment, light and dark, a narrow screen, paper. Prints what it measured; ends with 1 if something is not as it should be.

    pip install playwright && playwright install chromium      # or a Chromium of the system
    scripts/html/check.py page.html [--out FOLDER] [--chromium /usr/bin/chromium]
"""

import argparse
import pathlib
import shutil
import sys
import time

from playwright.sync_api import sync_playwright

MOST_BYTES = 20 << 20
MOST_SECONDS = 2.0


class Check:
    """Counts what is wrong, and goes on."""

    def __init__(self):
        self.wrong = 0

    def __call__(self, name, fine, more=""):
        self.wrong += not fine
        print(f"{'ok   ' if fine else 'WRONG'} {name}{f': {more}' if more != '' else ''}")


def opened(browser, file, errors, **how):
    """The page, when it can be used."""
    context = browser.new_context(offline=True, **how)
    page = context.new_page()
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: errors.append(e.message))
    page.on("request", lambda r: errors.append(r.url) if r.url.split(":")[0] not in ("file", "data", "blob") else None)
    begun = time.monotonic()
    page.goto(file.resolve().as_uri(), wait_until="commit")
    while not page.evaluate("!!window.vramscope"):
        if time.monotonic() - begun > 30:
            sys.exit("the page did not become ready in 30 s: " + "; ".join(errors))
        time.sleep(0.02)
    return page


def view(page):
    return page.evaluate("({from: vramscope.app.view.from, to: vramscope.app.view.to})")


def settle(page):
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 120)))")


def middle(page, selector, x=0.5, y=0.5):
    """A point of an element, scrolled into sight."""
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] * x, box["y"] + box["height"] * y


def tip(page):
    return page.locator("#tip").inner_text() if page.locator("#tip").is_visible() else ""


def mouse(page, check):
    x, y = middle(page, "#timeline", 0.6, 0.7)
    page.mouse.move(x, y)
    check("hover on the timeline tells bytes", "shown" in tip(page))
    before = view(page)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    settle(page)
    near = view(page)
    check("ctrl and wheel zoom in", near["to"] - near["from"] < (before["to"] - before["from"]) * 0.9)
    page.mouse.down()
    page.mouse.move(x - 120, y, steps=6)
    page.mouse.up()
    settle(page)
    moved = view(page)
    check("dragging moves", moved["from"] > near["from"] and abs((moved["to"] - moved["from"]) - (near["to"] - near["from"])) < 2)
    page.mouse.click(x, y)
    settle(page)
    picked = page.evaluate("vramscope.app.picked")
    check("a click picks a moment", moved["from"] <= picked <= moved["to"])
    check("who holds it follows", page.locator("[data-when=picked]").get_attribute("aria-checked") == "true")
    check("segments follow", page.locator("#allocator-note").inner_text().startswith("at "))
    page.mouse.wheel(0, -240)
    settle(page)
    check("after a click the wheel zooms by itself", view(page)["to"] - view(page)["from"] < moved["to"] - moved["from"])
    page.locator("#zoom-all").click()
    settle(page)


def allocation(page, check):
    page.locator("#allocations").scroll_into_view_if_needed()
    settle(page)
    spot = page.evaluate("""() => {
      const boxes = vramscope.app.allocations.boxes.filter(b => b[2] > 100);
      const b = boxes.sort((p, q) => (q[2] - q[1]) * (q[4] - q[3]) - (p[2] - p[1]) * (p[4] - p[3]))[0];
      return b && [(Math.max(b[1], 76) + b[2]) / 2, (b[3] + b[4]) / 2];
    }""")
    if not spot:
        return check("an allocation is drawn", False)
    box = page.locator("#allocations").bounding_box()
    page.mouse.move(box["x"] + spot[0], box["y"] + spot[1])
    settle(page)
    text = tip(page)
    check("hover on an allocation tells size and age", "iB" in text and "from " in text and ("freed" in text), " ".join(text.split())[:90])
    page.mouse.click(box["x"] + spot[0], box["y"] + spot[1])
    settle(page)
    check("a click pins it", page.locator("#pinned").is_visible())
    page.locator("#pinned button").click()


def keyboard(page, check):
    page.locator("#timeline").focus()
    all_of = view(page)
    page.keyboard.press("+")
    page.keyboard.press("+")
    near = view(page)
    check("+ zooms in", near["to"] - near["from"] < (all_of["to"] - all_of["from"]) * 0.6)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    check("arrows move", view(page)["from"] > all_of["from"])
    picked = page.evaluate("vramscope.app.picked")
    page.keyboard.press("Enter")
    check("Enter picks the middle", page.evaluate("vramscope.app.picked") != picked)
    settle(page)
    page.keyboard.press("]")
    settle(page)
    check("] goes to the next kept moment", page.evaluate("vramscope.app.steps.includes(vramscope.app.picked)"))
    page.keyboard.press("0")
    check("0 shows all", view(page) == all_of)
    page.locator("#allocator").focus()
    page.keyboard.press("ArrowRight")
    check("arrows go through segments and blocks", page.locator("#allocator-detail").is_visible())
    page.locator("#icicle").focus()
    page.keyboard.press("ArrowDown")
    check("arrows go through the flame graph", "all, in" in page.locator("#icicle-note").inner_text())
    first = page.locator("#who-table tbody button").first
    first.focus()
    page.keyboard.press("Enter")
    check("a row opens to its stack", page.locator("#who-table tbody ol.stack").count() + page.locator("#who-table tbody p.dim").count() > 0)
    order = page.locator("#who-table tbody tr:first-child td.name").inner_text()
    page.locator("#who-table thead button").nth(1).click()
    check("columns sort", page.locator("#who-table thead th").nth(1).get_attribute("aria-sort") == "ascending", order.split("\n")[0])
    page.locator("#who-table thead button").nth(1).click()
    for by in ("stack", "function", "library", "region", "thread", "kind", "line"):
        page.locator("#who-by").select_option(by)
        if page.locator("#who-table tbody tr").count() == 0:
            check(f"by {by}", False)
    # What a screen reader says must not be nothing.
    nameless = page.evaluate("""() => [...document.querySelectorAll('button,select,input,canvas,a')].filter(e =>
      !e.closest('[hidden]') && !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length) || e.getAttribute('aria-hidden'))).map(e => e.outerHTML.slice(0, 80))""")
    check("everything that can be used has a name", not nameless, nameless or "")


def fingers(browser, file, errors, check):
    page = opened(browser, file, errors, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True, device_scale_factor=2)
    settle(page)
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    check("a narrow screen needs no sideways scrolling", wide[0] <= wide[1], wide)
    page.locator("#timeline").scroll_into_view_if_needed()
    before = view(page)
    page.evaluate("""() => {
      const c = document.getElementById('timeline'), box = c.getBoundingClientRect();
      c.setPointerCapture = () => {};
      const at = (type, id, x) => c.dispatchEvent(new PointerEvent(type, {pointerId: id, pointerType: 'touch', clientX: box.left + x, clientY: box.top + 60, button: 0, buttons: 1, bubbles: true}));
      at('pointerdown', 1, 180); at('pointerdown', 2, 240);
      for (let i = 1; i <= 8; i++) { at('pointermove', 1, 180 - 8 * i); at('pointermove', 2, 240 + 8 * i); }
      at('pointerup', 1, 116); at('pointerup', 2, 304);
    }""")
    near = view(page)
    check("two fingers zoom", near["to"] - near["from"] < (before["to"] - before["from"]) * 0.6)
    x, y = middle(page, "#timeline", 0.6)
    page.touchscreen.tap(x, y)
    settle(page)
    check("a tap picks a moment", near["from"] <= page.evaluate("vramscope.app.picked") <= near["to"])
    return page


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("page", type=pathlib.Path)
    words.add_argument("--out", type=pathlib.Path, help="folder for screenshots")
    words.add_argument("--chromium", help="the browser's program", default=shutil.which("chromium"))
    given = words.parse_args()
    out = given.out
    if out:
        out.mkdir(parents=True, exist_ok=True)
    check, errors = Check(), []
    size = given.page.stat().st_size
    check("at most 20 MB", size <= MOST_BYTES, f"{size / (1 << 20):.2f} MiB")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        page = opened(browser, given.page, errors, viewport={"width": 1280, "height": 900}, color_scheme="light")
        ready = page.evaluate("vramscope.ready") / 1000
        check("interactive within 2 s", ready <= MOST_SECONDS, f"{ready:.2f} s after navigation, drawn")
        settle(page)
        if out:
            page.screenshot(path=out / "light.png", full_page=True)
        mouse(page, check)
        allocation(page, check)
        keyboard(page, check)
        frames = page.evaluate("""async () => {
          const view = vramscope.app.view, from = performance.now();
          for (let i = 0; i < 20; i++) { view.zoom(i < 10 ? 1.4 : 1 / 1.4); await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); }
          return (performance.now() - from) / 20;
        }""")
        check("zooming stays smooth", frames < 150, f"{frames:.0f} ms a step")
        runs = page.locator("#run option").count()
        for run in range(runs):
            page.evaluate(f"vramscope.app.showRun({run})")
            for device in range(page.locator("#device option").count()):
                page.evaluate(f"vramscope.app.showDevice({device})")
                settle(page)
        page.evaluate("vramscope.app.showRun(0)")
        was = page.evaluate("document.documentElement.dataset.theme")
        page.locator("#theme").click()
        check("light and dark", {was, page.evaluate("document.documentElement.dataset.theme")} == {"light", "dark"})
        page.pdf(path=(out or pathlib.Path("/tmp")) / "page.pdf", format="A4", print_background=True)
        dark = opened(browser, given.page, errors, viewport={"width": 1280, "height": 900}, color_scheme="dark")
        check("dark where the system is", dark.evaluate("document.documentElement.dataset.theme") == "dark")
        settle(dark)
        narrow = fingers(browser, given.page, errors, check)
        if out:
            dark.screenshot(path=out / "dark.png", full_page=True)
            narrow.screenshot(path=out / "narrow.png", full_page=True)
        browser.close()
    check("no error, no request", not errors, errors or "")
    sys.exit(1 if check.wrong else 0)


if __name__ == "__main__":
    main()
