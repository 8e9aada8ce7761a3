#!/usr/bin/env bash
# Makes the generated files of examples/site again: the picture, the film, the icon, and the
# precompressed forms of the stylesheet. Run it after a change to dunes.rs or style.css; the
# results are kept in the repository, so that trying samum does not need the tools below.
#
#     examples/make-site.sh
#
# Needs rustc, ffmpeg (with libx264), chromium, gzip, brotli, zstd.
set -euo pipefail
cd "$(dirname "$0")"

site=$PWD/site
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# SVG PNG WIDTH HEIGHT: renders with Chromium, because browsers will show the SVG.
screenshot() {
    "${CHROMIUM:-chromium}" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --disable-background-networking --disable-component-update --disable-sync --no-first-run \
        --default-background-color=00000000 --user-data-dir="$work/profile" \
        --window-size="$3,$4" --screenshot="$2" "file://$1" 2>"$work/chromium.log" ||
        { cat "$work/chromium.log" >&2; exit 1; }
}

rustc --edition 2024 -O -o "$work/dunes" dunes.rs

# The picture: drawn as SVG, and as PNG for the film's poster, which needs pixels.
"$work/dunes" svg >"$site/dunes.svg"
screenshot "$site/dunes.svg" "$site/dunes.png" 1280 720

# The film: 12 s, about 500 KB. faststart puts the index first, so that a browser can show the
# beginning before it has the end; a key frame every 2 s keeps seeking (a range request) cheap.
"$work/dunes" frames |
    ffmpeg -v error -y -f rawvideo -pix_fmt rgb24 -s 960x540 -r 24 -i - \
        -c:v libx264 -preset slow -crf 30 -g 48 -pix_fmt yuv420p -bitexact -movflags +faststart \
        "$site/dunes.mp4"

# The icon, also in the form that browsers request without a link.
screenshot "$site/favicon.svg" "$work/icon.png" 512 512
ffmpeg -v error -y -i "$work/icon.png" -vf scale=32:32:flags=lanczos -bitexact -update 1 \
    "$site/favicon.ico"

# Precompressed siblings, which a server may send to clients that accept their coding.
gzip -9 --no-name --keep --force "$site/style.css"
brotli --best --force --keep "$site/style.css"
zstd -19 --quiet --force --keep "$site/style.css"

ls -l "$site"
