#!/usr/bin/env python3
"""One page of all kept results, with charts: `bench/page.py [PAGE.html]` reads bench/results ($BENCH_RESULTS), and writes a file
that needs nothing else (default: results.html in that folder)."""

import html
import json
import os
import sys

from common import HERE, MIB, median, words

TITLES = {
    "iops": "Random 4 KiB over NBD",
    "servers": "NBD, cell by cell",
    "encryption": "An encrypted volume, cell by cell",
    "fuse": "A loop device over a FUSE file",
    "vm": "Mixed hot and cold load, fast disk and hard disk",
    "exports": "ublk against NBD, in a virtual machine",
    "mover": "A load beside the mover, and without it",
    "mover-apart": "A load beside the mover, and without it (slow disk in memory)",
    "growth": "How it grows",
    "fill": "A fill, and what follows",
    "scale": "Every chunk of 128 GiB + 2 TiB mapped",
    "engine": "The engine alone",
}
OURS, LIMIT = "#c2410c", "#94a3b8"
PEERS = {"qemu-nbd": "#1d4ed8", "qemu-nbd LUKS": "#1d4ed8", "dm-cache": "#1d4ed8", "nbdkit": "#0f766e", "bcache": "#0f766e",
         "nbdfuse": "#0f766e", "qemu-storage-daemon": "#6d28d9", "dm-writecache": "#6d28d9"}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1f2937 }
h2 { margin: 3rem 0 .3rem; border-top: 1px solid #e5e7eb; padding-top: 1.5rem } h3 { font-size: 1rem; margin: 1.2rem 0 .2rem }
.machine { color: #6b7280; font-size: .85rem } .met::before { content: "\\2713\\a0"; color: #15803d }
.missed { font-weight: 600 } .missed::before { content: "\\2717\\a0"; color: #b91c1c }
ul { list-style: none; padding: 0; font-size: .9rem } svg { display: block; width: 100%; max-width: 44rem }
text { font-size: 12px; fill: #374151 } .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(25rem, 1fr)); gap: 0 2rem }
"""


def chart(title, values, unit):
    """Bars of {name: value}, the longest as wide as there is room."""
    most, lines = max([*values.values(), 1e-9]), []
    for i, (name, value) in enumerate(values.items()):
        y, width = i * 22, max(1, 300 * value / most)
        colour = OURS if name.startswith("bimetal") else PEERS.get(name, LIMIT)
        digits = 0 if value >= 100 else 2 if value < 10 else 1
        lines.append(f'<text x="0" y="{y + 15}">{html.escape(name)}</text>'
                     f'<rect x="140" y="{y + 3}" width="{width:.0f}" height="16" rx="2" fill="{colour}"/>'
                     f'<text x="{146 + width:.0f}" y="{y + 15}">{value:,.{digits}f} {unit}</text>')
    height = len(values) * 22 + 4
    return (f'<div><h3>{html.escape(title)}</h3><svg viewBox="0 0 540 {height}" role="img" aria-label="{html.escape(title)}">'
            f'{"".join(lines)}</svg></div>')


def row_charts(rows):
    for row in rows:
        title = row.get("case") or row["cell"]
        found = row.get("servers") or row.get("contestants") or row["devices"]
        yield chart(title, {n: f["iops"] for n, f in found.items()}, "IOPS")
        cpu = {n: f.get("cpu_us", f.get("cpu_s_per_1000", 0) * 1000) for n, f in found.items()}
        yield chart(f"{title}: processor time of a request (less is better)", {n: v for n, v in cpu.items() if v}, "µs")


def vm_charts(rounds):
    for phase, what in (("cold", "from cold"), ("warm", "warm")):
        for key, title, unit in (("iops", "requests a second", ""), ("p99_ms", "99th percentile (less is better)", "ms")):
            values = {n: median(r[n][phase][key] for r in rounds) for n in rounds[0]}
            yield chart(f"{what}: {title}", values, unit)


def engine_charts(rounds):
    for load in rounds[0]["memory"]:
        values = {f"{kind}": median(r[kind][load]["user_us"] for r in rounds) for kind in rounds[0]}
        yield chart(f"{load}: user time of a request (less is better)", values, "µs")


def mover_charts(rows):
    for row in rows:
        for key, title, unit in (("iops", "requests a second", ""), ("p99_us", "99th percentile (less is better)", "µs")):
            yield chart(f"{row['case']}: {title}", {"without": row["off"][key], "bimetal, moving": row["work"][key]}, unit)


def growth_charts(result):
    def name(r):
        size = f"{r['gib'] // 1024} TiB" if r["gib"] >= 1024 else f"{r['gib']} GiB"
        return f"{size}, {r['percent_mapped']} %"

    sizes = {name(r): r for r in result["size"]}
    yield chart("Start (less is better)", {n: r["clean"]["start_s"] for n, r in sizes.items()}, "s")
    yield chart("Start after a crash, journals full", {n: r["crashed"]["start_s"] for n, r in sizes.items()}, "s")
    yield chart("Memory (less is better)", {n: r["clean"]["rss"] / MIB for n, r in sizes.items()}, "MiB")
    yield chart("Random reads", {n: r["clean"]["iops"] for n, r in sizes.items()}, "IOPS")


def charts_of(name, result):
    if name.startswith("mover"):
        return mover_charts(result["rows"])
    if name == "growth":
        return growth_charts(result)
    if "rows" in result:
        return row_charts(result["rows"])
    if name == "vm":
        return vm_charts(result["rounds"])
    if name == "engine":
        return engine_charts(result["rounds"])
    return ()


def section(name, result):
    bars = "".join(f'<li class="{"met" if v["met"] else "missed"}">{html.escape(v["bar"])}</li>' for v in result["verdicts"])
    charts = "".join(charts_of(name, result))
    return (f'<h2 id="{name}">{TITLES[name]}</h2><p class="machine">{html.escape(words(result["machine"]))}</p>'
            f'<ul>{bars}</ul><div class="charts">{charts}</div>')


def main():
    folder = os.environ.get("BENCH_RESULTS") or os.path.join(HERE, "results")
    found = {}
    for name in TITLES:
        path = os.path.join(folder, name + ".json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                found[name] = json.load(f)
    if not found:
        sys.exit(f"no results in {folder}: run the scripts first")
    missing = [n for n in TITLES if n not in found]
    told = f'<p>Not measured here: {", ".join(missing)}.</p>' if missing else ""
    links = " · ".join(f'<a href="#{n}">{TITLES[n]}</a>' for n in found)
    page = (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Bimetal: benchmarks</title><style>{STYLE}</style>'
            f'<h1>Bimetal: benchmarks</h1><p>{links}</p>{told}<p>Where servers are compared they '
            f'take turns, and the bars are medians of the ratios within a round; charts show medians of the values.</p>'
            f'{"".join(section(n, r) for n, r in found.items())}</html>\n')
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(folder, "results.html")
    with open(out, "w", encoding="utf-8") as f:
        f.write(page)
    print(out)


main()
