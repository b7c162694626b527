"""Runs the examples of docs/queries.md on tables, and writes their answers into it.

    python3 queries.py FOLDER ../../docs/queries.md

FOLDER: what `vramscope export --format parquet -o FOLDER` wrote. Needs (pip install) duckdb and polars."""

import contextlib
import io
import os
import re
import sys

import duckdb
import polars


def table(names, rows):
    """Rows as plain text, numbers to the right."""
    text = [[("" if c is None else str(c)) for c in row] for row in rows]
    widths = [max(len(x) for x in column) for column in zip(names, *text)] if text else [len(n) for n in names]
    right = [all(isinstance(r[i], (int, float)) or r[i] is None for r in rows) for i in range(len(names))]
    line = lambda row: "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)).rstrip()
    return "\n".join([line(names), *map(line, text)])


def answer(language, code):
    if language == "sql":
        result = duckdb.sql(code)
        return table(result.columns, result.fetchall()) if result else ""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {"polars": polars})
    return out.getvalue().strip()


def main():
    folder, page = sys.argv[1], os.path.abspath(sys.argv[2])
    with open(page) as file:
        text = file.read()
    os.chdir(folder)
    polars.Config.set_tbl_formatting("ASCII_MARKDOWN").set_tbl_hide_dataframe_shape(True)
    polars.Config.set_tbl_hide_column_data_types(True).set_fmt_str_lengths(60).set_tbl_width_chars(110)

    def run(block):
        said = answer(block[1], block[2])
        said = f"```\n{said}\n```\n" if said else ""
        return f"```{block[1]}\n{block[2]}```\n{said}"

    text = re.sub(r"```(sql|python)\n(.*?)```\n(?:```\n.*?```\n)?", run, text, flags=re.S)
    with open(page, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
