#!/usr/bin/env bash
# Pictures of built pages, to be looked at: each page at the widths of a desktop and of a phone, light and dark.
#
#     tools/screenshot.sh FOLDER PAGE...       for example  tools/screenshot.sh shots book/home book/part1/fixed_points
#
# Needs Chromium (Debian: apt-get install chromium) and a book built by `make book`. HEIGHT sets the height in pixels.
set -euo pipefail
out=$1
shift
html="$(cd "$(dirname "$0")/.." && pwd)/_build/html"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
mkdir -p "$out"

for page in "$@"; do
  for width in 1280 400; do
    for scheme in dark light; do
      [ "$scheme" = dark ] && preferred=0 || preferred=1
      timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$profile" \
        --blink-settings=preferredColorScheme=$preferred --virtual-time-budget=8000 \
        --window-size="$width,${HEIGHT:-2400}" --screenshot="$out/$(basename "$page")-$width-$scheme.png" \
        "file://$html/$page.html" 2>/dev/null
    done
  done
done
ls "$out"
