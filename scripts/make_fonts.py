"""Makes the fonts of assets/fonts and static/ out of the npm package @fontsource/noto-sans-sc.

    npm pack @fontsource/noto-sans-sc@5.3.0 && tar xzf fontsource-noto-sans-sc-5.3.0.tgz
    .venv/bin/python scripts/make_fonts.py package

The package's files are compressed for browsers, which WeasyPrint would unpack at every report and vl-convert cannot
read; plain TrueType loads at once in both. Their name tables say "Noto Sans SC Thin": charts find a font by that name
alone and draw no text where it is not the one asked for, so it is written anew. Glyphs stay as they are.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from fontTools.ttLib import TTFont

FONTS = Path(__file__).resolve().parents[1] / "assets" / "fonts"
FAMILY = "Noto Sans SC"
WEIGHTS = {"Regular": 400, "Bold": 700}
KEPT_NAMES = (0, 5, 14)  # copyright, version, licence's address
WINDOWS_ENGLISH = (3, 1, 0x409)


def made(source: Path, style: str) -> TTFont:
    """A style as plain TrueType under its own name; no date of this machine, so that it is the same every time."""
    font = TTFont(source / "files" / f"noto-sans-sc-chinese-simplified-{WEIGHTS[style]}-normal.woff",
                  recalcTimestamp=False)  # fmt: skip
    font.flavor = None
    table = font["name"]
    kept = {number: str(table.getDebugName(number)) for number in KEPT_NAMES}
    table.names = []
    full = f"{FAMILY} {style}" if style != "Regular" else FAMILY
    own = {1: FAMILY, 2: style, 3: f"{kept[5]};{full}", 4: full, 6: f"NotoSansSC-{style}"}
    for number, text in sorted({**kept, **own}.items()):
        table.setName(text, number, *WINDOWS_ENGLISH)
    del font["STAT"]  # names an axis of weights that a single weight does not have
    return font


def main() -> None:
    """Writes both styles and the licence beside them."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("package", type=Path, help="the unpacked package")
    source = asked.parse_args().package
    FONTS.mkdir(parents=True, exist_ok=True)
    for style in WEIGHTS:
        path = FONTS / f"NotoSansSC-{style}.ttf"
        made(source, style).save(path)
        print(f"{path.name}: {path.stat().st_size} bytes")
    shutil.copyfile(source / "LICENSE", FONTS / "OFL.txt")
    web = made(source, "Regular")
    web.flavor = "woff2"  # browsers unpack it quickly; served by the app where the system has no Chinese font
    web.save(FONTS.parents[1] / "static" / "NotoSansSC-Regular.woff2")


if __name__ == "__main__":
    main()
