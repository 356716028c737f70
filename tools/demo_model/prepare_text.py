"""Unpacks the Debian packages with public-domain text and writes cleaned passages.

Reads DATA/debs/*.deb (fetched with `apt-get download bible-kjv bible-kjv-text dict-jargon
dict-devil`), writes DATA/passages.json: {"train": [...], "heldout": [...]}, each entry
{"source", "title", "text"}. Every 25th passage is held out.
"""

import argparse
import gzip
import json
import re
import subprocess
from pathlib import Path

PACKAGES = ("bible-kjv", "bible-kjv-text", "dict-jargon", "dict-devil")
HELD_OUT_EVERY = 25
VERSE = re.compile(r"^(\S+?)(\d+):(\d+) (.*)$")
DEVIL_HEADWORD = re.compile(r"^([A-Z][A-Z'\- ]{1,30}), (?=[a-z])")


def unpack(data):
    """Unpacks the packages below DATA/root without installing them."""
    root = data / "root"
    for package in PACKAGES:
        for deb in (data / "debs").glob(f"{package}_*.deb"):
            subprocess.run(["dpkg", "-x", str(deb), str(root)], check=True)
    return root


def bible_passages(root):
    """One passage per chapter, verses joined by newlines, without verse numbers."""
    command = [str(root.resolve() / "usr/bin/bible"), "-f", "gen1:1-rev22:21"]
    text = subprocess.run(
        command,
        cwd=root / "usr/lib",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    chapters = {}
    for book, chapter, _, verse in (m.groups() for m in map(VERSE.match, text.splitlines()) if m):
        chapters.setdefault((book, int(chapter)), []).append(verse.strip())
    return [
        {"source": "bible", "title": f"{book} {chapter}", "text": "\n".join(verses)}
        for (book, chapter), verses in chapters.items()
    ]


def plain(text):
    """ASCII quotes and dashes, cross-reference braces removed, paragraphs unwrapped."""
    for fancy, simple in {
        "\u201c": '"',
        "\u201d": '"',
        "\u2018": "'",
        "\u2019": "'",
        "\u2014": "--",
        "\u2013": "-",
        "\u2026": "...",
        "\u00a0": " ",
    }.items():
        text = text.replace(fancy, simple)
    paragraphs = [" ".join(p.split()) for p in re.sub(r"[{}]", "", text).split("\n\n")]
    return "\n".join(p for p in paragraphs if p)


def jargon_passages(root):
    """One passage per entry: headword in column 0, then pronunciation line, then indented text."""
    raw = gzip.open(root / "usr/share/dictd/jargon.dict.dz", "rt", encoding="utf-8").read()
    entries = re.split(r"\n(?=\S[^\n]*\n \S)", raw)[1:]
    passages = []
    for entry in entries:
        title, _, body = entry.partition("\n")
        text = plain(re.sub(r"^ \S[^\n]*\n", "", body))
        if len(text) > 40 and not title.startswith("00-database"):
            passages.append({"source": "jargon", "title": plain(title), "text": text})
    return passages


def devil_passages(root):
    """One passage per definition of the Devil's Dictionary; verse lines keep their breaks."""
    raw = gzip.open(root / "usr/share/dictd/devil.dict.dz", "rt", encoding="utf-8").read()
    passages = []
    for entry in re.split(r"\n\n(?=[A-Z][A-Z'\- ]{1,30}, [a-z])", raw)[1:]:
        title = DEVIL_HEADWORD.match(entry).group(1)
        blocks = []
        for block in entry.split("\n\n"):
            lines = [" ".join(line.split()) for line in block.splitlines() if line.strip()]
            blocks.append(("\n" if block.startswith("    ") else " ").join(lines))
        passages.append(
            {"source": "devil", "title": title.lower(), "text": "\n".join(b for b in blocks if b)}
        )
    return passages


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    root = unpack(data)
    passages = bible_passages(root) + jargon_passages(root) + devil_passages(root)
    split = {"train": [], "heldout": []}
    for i, passage in enumerate(passages):
        split["heldout" if i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else "train"].append(passage)
    (data / "passages.json").write_text(json.dumps(split, indent=0), encoding="utf-8")
    for name, part in split.items():
        for source in ("bible", "jargon", "devil"):
            texts = [p["text"] for p in part if p["source"] == source]
            print(
                f"{name:8} {source:7} {len(texts):5} passages {sum(map(len, texts)):9} characters"
            )


if __name__ == "__main__":
    main()
