#!/bin/sh
# Builds the C sample: sh samples/c/build.sh [FOLDER], where FOLDER (default build/c) gets classify, digits.so, digits.h.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-build/c}
mkdir -p "$out"
${NACRE:-nacre} compile "$here/../digits/digits.nacre" -o "$out/digits.so"
${NACRE:-nacre} compile "$here/../digits/digits.nacre" --emit header -o "$out/digits.h"
# The program looks for the artifact in its own folder.
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -I"$out" "$here/main.c" -L"$out" -l:digits.so -Wl,-rpath,'$ORIGIN' \
  -o "$out/classify"
