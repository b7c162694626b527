"""Names that are hard to write down: odd file names, other scripts, emoji, half surrogates, very long ones."""

import os
import gpu

SOURCE = """
def %s():

    t()
%s()
"""


def run(name, file):
    space = {"t": gpu.touch}
    exec(compile(SOURCE % (name, name), file, "exec"), space)
    eval(compile("t()", file, "eval"), space)
    eval(compile("(lambda:\n t())()", file, "eval"), space)


long = "n" * 1500
for name in ["f", "é", "Ωμέγα", "имя", "名前", "𝔘𝔫", "_" * 63, "a" * 127, "ß" * 200, long, "ü" * 1100, "名" * 1100]:
    run(name, "<made up>")
for file in [
    "",
    " ",
    "a b.py",
    "tab\there",
    "line\nbreak",
    'quote".py',
    "back\\slash\\u0041.py",
    "<stdin>",
    "{}",
    "\x01\x1f\x7f",
    "\x80\x9f\xa0\xff",
    "été.py",
    "файл.py",
    "ファイル.py",
    "🦀🐍.py",
    "mixed é ファ 🦀",
    "\u2028\u2029",
    "\ufeff\ufffe\uffff",
    "\U0010ffff",
    "\ud800",
    "\udfff\ud800x",
    os.fsdecode(b"/tmp/\xff\xfe\x80name.py"),
    "/" + "long/" * 300 + "é.py",
    "🦀" * 1100,
]:
    run("function", file)
print(sum(1 for _ in open(__file__, encoding="utf-8")))
gpu.use(gpu.held)
run(long, "🦀")
gpu.touch()

# Classes and nested functions: the qualified name.
exec(
    compile(
        """
class Äußere:
    class Innere:
        def méthode(self):
            def nested():
                return [t() for _ in range(1)]
            nested()
    t()
Äußere.Innere().méthode()
def renamed(): t()
renamed.__name__, renamed.__qualname__ = "other", "quite.other"
renamed()
renamed.__code__ = renamed.__code__.replace(co_name="third", co_filename="replaced.py", co_firstlineno=700)
renamed()
renamed.__code__ = renamed.__code__.replace(co_filename="with\\0null", co_name="")
renamed()
""",
        "классы.py",
        "exec",
    ),
    {"t": gpu.touch},
)
